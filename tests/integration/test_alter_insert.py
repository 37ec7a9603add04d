"""ALTER JOB … INSERT: the SELECT and the format options change, everything else must stay."""

from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from tests.error_values import assert_names, raises
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

PROPERTIES = [("s3.max_batch_files", "1"), ("session.insert_max_filter_ratio", "0.5")]


def insert(folder: Path, select: str = "SELECT id, note FROM SRC", **options: str) -> str:
    given = {"uri": f"file://{folder}/*.json", "format": "json", **options}
    source = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"ALTER JOB j INSERT INTO t {select.replace('SRC', f'FILES({source})')}"


@pytest.fixture
def paused(spark_node: Node, folder: Path) -> Node:
    """A node whose job has loaded two files and was then paused."""
    for number, name in enumerate("ab"):
        write_rows(folder / f"{name}.json", numbered(number))
    spark_node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=PROPERTIES)}")
    spark_node.run()
    spark_node.sql("PAUSE JOB j")
    return spark_node


def test_t35_an_altered_select_survives_a_restart_and_is_in_show_create(
    paused: Node, folder: Path
) -> None:
    paused.sql(insert(folder, "SELECT id * 10, upper(note) FROM SRC WHERE id <> 3"))
    for number, name in enumerate("cde", start=2):
        write_rows(folder / f"{name}.json", numbered(number))
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    written = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
    assert [row["id"] for row in node.rows("t")] == [0, 1, 20, 40]
    assert "SELECT id * 10, upper(note) FROM FILES(" in written
    assert written.rstrip(";").endswith("WHERE id <> 3")
    assert node.job("j").cumulative.rows_unselected == 1


def test_t34_alter_keeps_everything_that_it_does_not_name(paused: Node, folder: Path) -> None:
    before = paused.job("j").definition

    paused.sql(insert(folder, "SELECT id, note FROM SRC WHERE id > 0"))

    after = paused.job("j").definition
    assert after.properties == before.properties
    assert after.source == before.source
    assert after.source_columns == before.source_columns
    assert after.revision == before.revision + 1


def test_a_select_on_spark_can_be_altered_to_a_plain_column_list(
    paused: Node, folder: Path
) -> None:
    paused.sql(insert(folder, "SELECT id, note FROM SRC WHERE id > 0"))
    middle = paused.job("j").definition.query

    paused.sql(insert(folder))

    assert middle is not None
    assert paused.job("j").definition.query is None


@pytest.mark.parametrize(
    ("select", "options", "named"),
    [
        ("SELECT nope, note FROM SRC", {}, ("source", '"nope"')),
        ("SELECT id + nope, note FROM SRC", {}, ("`nope`",)),
        ("SELECT id, note FROM SRC ORDER BY id", {}, ("ORDER BY",)),
        ("SELECT id FROM SRC", {}, ("INSERT", "2", "SELECT", "1")),
        ("SELECT id, note FROM SRC", {"uri": "file:///else/*"}, ("uri",)),
        ("SELECT id, note FROM SRC", {"enclose": "x"}, ('"enclose"',)),
        ("SELECT id, note FROM SRC", {}, ("ALTER",)),
    ],
)
def test_t32_a_refused_alter_does_not_change_the_job(
    paused: Node, folder: Path, *, select: str, options: dict[str, str], named: tuple[str, ...]
) -> None:
    before = to_text(paused.job("j"))

    with pytest.raises(UserError) as caught:
        paused.sql(insert(folder, select, **options))

    assert_names(caught.value.message, *named)
    assert to_text(paused.job("j")) == before


def test_another_table_or_function_is_refused(paused: Node, folder: Path) -> None:
    paused.sql("CREATE TABLE other (id BIGINT, note STRING)")
    for statement, word in (
        (insert(folder).replace("INTO t ", "INTO other "), "table"),
        (insert(folder).replace("FILES(", "S3("), "source function"),
    ):
        with raises(UserError, Code.OPTION_ERR, word) as caught:
            paused.sql(statement)
        assert caught.value.code is Code.OPTION_ERR


def test_t40_a_session_property_applies_from_the_next_epoch(paused: Node, folder: Path) -> None:
    paused.sql(insert(folder, "SELECT id, CAST(CAST(note AS INT) AS STRING) FROM SRC"))
    paused.sql("ALTER JOB j PROPERTIES('session.enable_insert_strict' = 'false')")
    write_rows(folder / "c.json", [{"id": 2, "note": "x"}, {"id": 3, "note": "7"}])
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    assert {"id": 2, "note": None} in node.rows("t")
    assert {"id": 3, "note": "7"} in node.rows("t")
