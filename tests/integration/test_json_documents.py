"""JSON files that are not line-delimited: columns are inferred, and rows are loaded."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, UserError
from tests.error_values import raises
from tests.node import Node

ON_BUCKETS_TOO = True

ARRAY = '[{"id": 1, "price": 1.50, "tags": [1]},\n {"id": 2,\n "price": 2, "tags": []}]'
ROOTED = '{"data": {"id": 1, "price": 1.50, "tags": [1]}}\n{"data": {"id": 2, "price": 2}}\n'


def load(node: Node, folder: Path, content: str, *, table: str, options: str) -> list[Any]:
    (folder / "a.json").write_text(content)
    source = f"FILES('uri' = 'file://{folder}/*', 'format' = 'json', {options})"
    node.sql(f"CREATE TABLE t ({table})")
    node.sql(f"CREATE JOB j ON STREAMING DO INSERT INTO t SELECT id, price FROM {source}")  # noqa: S608
    node.run()
    return node.rows("t")


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (ARRAY, "'strip_outer_array' = 'true'"),
        (ROOTED, "'json_root' = '$.data'"),
        (f'{{"rows": {ARRAY}}}', "'strip_outer_array' = 'true', 'json_root' = '$.rows'"),
    ],
)
def test_columns_are_inferred_from_documents(
    node: Node, folder: Path, content: str, options: str
) -> None:
    rows = load(node, folder, content, table="id BIGINT, price DOUBLE", options=options)

    assert rows == [{"id": 1, "price": 1.5}, {"id": 2, "price": 2.0}]
    types = [c.type.sql for c in node.job("j").definition.source_columns]
    assert types == ["BIGINT", "DOUBLE", "ARRAY<BIGINT>"]


def test_numbers_read_as_strings_are_inferred_as_strings(node: Node, folder: Path) -> None:
    options = "'strip_outer_array' = 'true', 'num_as_string' = 'true'"
    rows = load(node, folder, ARRAY, table="id STRING, price STRING", options=options)

    assert rows == [{"id": "1", "price": "1.50"}, {"id": "2", "price": "2"}]
    types = [c.type.sql for c in node.job("j").definition.source_columns]
    assert types == ["STRING", "STRING", "ARRAY<STRING>"]


def test_jsonpaths_need_a_schema(node: Node, folder: Path) -> None:
    with raises(UserError, Code.OPTION_ERR, '"schema"', "jsonpaths"):
        load(
            node, folder, ROOTED, table="id INT, price INT", options="'jsonpaths' = '[\"$.a\"]'"
        )


def test_t36_format_options_survive_a_truncated_journal_and_a_restart(
    node: Node, folder: Path
) -> None:
    (folder / "a.csv").write_text("skip me\n'1';'x''y'\n'2';''\n")
    options = (
        "'format' = 'csv', 'column_separator' = ';', 'enclose' = '\\'', 'escape' = '\\\\', "
        "'skip_lines' = '1', 'empty_field_as_null' = 'true'"
    )
    properties = "'session.insert_max_filter_ratio' = '0.25'"
    node.sql("CREATE TABLE t (id INT, note STRING)")
    node.sql(
        f"CREATE JOB j PROPERTIES({properties}) ON STREAMING DO INSERT INTO t "  # noqa: S608
        f"SELECT c1, c2 FROM FILES('uri' = 'file://{folder}/*', {options})"
    )
    before = node.job("j").definition
    node.catalog.truncate_events(node.job("j").id, keep=0)

    node = node.restart()
    node.run()

    assert node.job("j").definition == before
    assert before.properties.filter_ratio_max == 0.25
    assert node.rows("t") == [{"id": 1, "note": "x'y"}, {"id": 2, "note": None}]
