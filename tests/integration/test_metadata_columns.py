"""Metadata columns with and without Spark, and files that are read by two tasks."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.epochs.output import TaskPlan
from penstock.epochs.task import run_task_text
from penstock.errors import UserError
from penstock.model.codec import from_text
from penstock.sources.files.reader import FilePart
from penstock.spark.executor import SparkExecutor
from tests.node import Node, read_table, write_rows

AT = datetime(2026, 11, 15, 10, 30, 0, 250000, UTC)
LENIENT = "PROPERTIES('session.enable_insert_strict' = 'false') "
LARGE_ROWS = 12_000
FILLER = "x" * 800


@pytest.fixture(
    params=["", pytest.param(" WHERE true", marks=pytest.mark.integration)],
    ids=["fused", "query"],
)
def where(request: pytest.FixtureRequest) -> str:
    """The text after FILES(…): nothing, or a WHERE that only Spark can run."""
    return str(request.param)


@dataclass(frozen=True, kw_only=True)
class Loading:
    """A node, and the text after the source in its SELECTs."""

    node: Node
    where: str = ""

    def load(
        self, select: str, source: str, *, columns: str, properties: str = ""
    ) -> list[dict[str, Any]]:
        """Load the rows of a SELECT into a new table and return the table's rows."""
        self.node.sql(
            f"CREATE TABLE t ({columns}); CREATE JOB j {properties}ON STREAMING DO "
            f"INSERT INTO t {select} FROM {source}{self.where}"
        )
        self.node.run()
        return self.node.rows("t")


@pytest.fixture
def loading(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loading]:
    """A node that runs the SELECT as its WHERE requires."""
    spark: SparkExecutor | None = request.getfixturevalue("spark") if where else None
    node = Node(tmp_path / "home", spark=spark)
    yield Loading(node=node, where=where)
    node.catalog.close()


def files(pattern: Path, *, kind: str = "json", more: str = "") -> str:
    return f"FILES('uri' = 'file://{pattern}', 'format' = '{kind}'{more})"


def set_modified(path: Path, at: datetime) -> None:
    nanoseconds = int(at.timestamp()) * 10**9 + at.microsecond * 1000
    os.utime(path, ns=(nanoseconds, nanoseconds))


def test_a_row_has_its_file_line_and_modification_time(loading: Loading, folder: Path) -> None:
    path = folder / "a.json"
    path.write_text('{"id": 1}\n\nnull\n{"id": 2}\n')
    set_modified(path, AT)

    rows = loading.load(
        "SELECT id, _file, _row, _modified_at",
        files(folder / "*.json"),
        columns="id BIGINT, f STRING, r BIGINT, m TIMESTAMP",
        properties=LENIENT,
    )

    assert rows == [
        {"id": 1, "f": str(path), "r": 1, "m": AT},
        {"id": 2, "f": str(path), "r": 4, "m": AT},
    ]
    assert (loading.node.job("j").definition.query is None) == (not loading.where)


def test_a_select_can_read_only_metadata_columns(loading: Loading, folder: Path) -> None:
    write_rows(folder / "a.json", [{"id": 1}, {"id": 2}])
    write_rows(folder / "b.json", [{"id": 3}])

    rows = loading.load(
        "SELECT _row, _file", files(folder / "*.json"), columns="r BIGINT, f STRING"
    )

    expected = [(1, "a"), (1, "b"), (2, "a")]
    assert [(row["r"], Path(row["f"]).stem) for row in rows] == expected


@pytest.mark.parametrize(
    ("kind", "content", "lines"),
    [
        ("csv", b"1\tx\n\n2\ty\n", [1, 3]),
        ("csv_with_names", b"id\tnote\n1\tx\n\n2\ty\n", [2, 4]),
        ("csv_with_names_and_types", b"id\tnote\nINT\tSTRING\n1\tx\n2\ty\n", [3, 4]),
    ],
)
def test_rows_of_csv_are_numbered_by_their_lines(
    *, loading: Loading, folder: Path, kind: str, content: bytes, lines: list[int]
) -> None:
    (folder / "a.csv").write_bytes(content)
    source = files(folder / "*.csv", kind=kind, more=", 'schema' = 'id INT, note STRING'")

    rows = loading.load("SELECT _row, id", source, columns="r BIGINT, id INT")

    assert [(row["r"], row["id"]) for row in rows] == list(zip(lines, [1, 2], strict=True))


def test_multiline_rows_of_csv_are_numbered_by_their_first_line(
    loading: Loading, folder: Path
) -> None:
    (folder / "a.csv").write_bytes(b'1\t"a\nb"\n2\t"c\n\nd"\n3\te\n')
    more = ", 'enclose' = '\"', 'schema' = 'id INT, note STRING'"

    rows = loading.load(
        "SELECT _row, id, note",
        files(folder / "*.csv", kind="csv", more=more),
        columns="r BIGINT, id INT, note STRING",
    )

    assert [(row["r"], row["id"], row["note"]) for row in rows] == [
        (1, 1, "a\nb"),
        (3, 2, "c\n\nd"),
        (6, 3, "e"),
    ]


def test_rows_of_parquet_are_numbered_across_row_groups(loading: Loading, folder: Path) -> None:
    table = pa.table({"id": list(range(10, 20))})
    pq.write_table(table, folder / "a.parquet", row_group_size=3)

    rows = loading.load(
        "SELECT _row, id",
        files(folder / "*.parquet", kind="parquet"),
        columns="r BIGINT, id BIGINT",
    )

    assert [row["r"] for row in rows] == sorted(range(1, 11), key=lambda n: f"{n},")
    assert all(row["r"] == row["id"] - 9 for row in rows)


@pytest.mark.parametrize(
    ("kind", "content", "rescued"),
    [
        ("json", b'{"id": 1, "x": {"y": [1.50]}, "z": null}\n', {"x": {"y": [1.5]}, "z": None}),
        ("csv", b"1\tmore\tand more\n", {"c2": "more", "c3": "and more"}),
        ("csv_with_names", b"id\textra\n1\tmore\n", {"extra": "more"}),
    ],
)
def test_fields_without_a_column_are_rescued(
    *, loading: Loading, folder: Path, kind: str, content: bytes, rescued: object
) -> None:
    (folder / "a.in").write_bytes(content)
    source = files(folder / "*.in", kind=kind, more=", 'schema' = 'id BIGINT'")

    rows = loading.load("SELECT id, _rescued", source, columns="id BIGINT, rest STRING")

    assert [(row["id"], json.loads(row["rest"])) for row in rows] == [(1, rescued)]


def test_parquet_fields_without_a_column_are_rescued(loading: Loading, folder: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "x": ["a", None]}), folder / "a.parquet")
    source = files(folder / "*.parquet", kind="parquet", more=", 'schema' = 'id BIGINT'")

    rows = loading.load("SELECT id, _rescued", source, columns="id BIGINT, rest STRING")

    assert [json.loads(row["rest"] or "{}").get("x") for row in rows] == ["a", None]


def test_a_record_without_extra_fields_has_no_rescued_data(
    loading: Loading, folder: Path
) -> None:
    write_rows(folder / "a.json", [{"id": 1}])
    source = files(folder / "*.json", more=", 'schema' = 'id BIGINT'")

    rows = loading.load("SELECT id, _rescued", source, columns="id BIGINT, rest STRING")

    assert rows == [{"id": 1, "rest": None}]


def test_a_column_of_the_files_overrides_a_metadata_column_of_the_same_name(
    loading: Loading, folder: Path
) -> None:
    write_rows(folder / "a.json", [{"id": 1, "_file": "mine", "_row": "ours"}])

    rows = loading.load(
        "SELECT id, _file, _row",
        files(folder / "*.json"),
        columns="id BIGINT, f STRING, r STRING",
    )

    assert rows == [{"id": 1, "f": "mine", "r": "ours"}]


def test_a_star_does_not_include_metadata_columns(loading: Loading, folder: Path) -> None:
    write_rows(folder / "a.json", [{"id": 1, "note": "x"}])

    rows = loading.load("SELECT *", files(folder / "*.json"), columns="id BIGINT, note STRING")

    assert rows == [{"id": 1, "note": "x"}]


@pytest.mark.integration
def test_a_star_excludes_metadata_columns_that_a_where_uses(
    spark_node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", [{"id": 1}, {"id": 2}])

    loading = Loading(node=spark_node, where=" WHERE _row > 1")
    rows = loading.load("SELECT *", files(folder / "*.json"), columns="id BIGINT")

    assert rows == [{"id": 2}]


@pytest.mark.integration
@pytest.mark.parametrize(("stars", "alias"), [("*", ""), ("f.*", " f")])
def test_a_star_next_to_a_metadata_column_is_refused(
    spark_node: Node, folder: Path, *, stars: str, alias: str
) -> None:
    write_rows(folder / "a.json", [{"id": 1}, {"id": 2}])
    loading = Loading(node=spark_node, where=alias)

    with pytest.raises(UserError, match=r'\*.* "_row"') as refused:
        loading.load(f"SELECT {stars}, _row", files(folder / "*.json"), columns="a INT, b INT")

    assert refused.value.hint


def in_folders(folder: Path, *names: str) -> None:
    """Write one numbered row into each folder."""
    for number, name in enumerate(names):
        write_rows(folder / name / "a.json", [{"id": number}])


def test_path_values_are_typed_by_the_schema_decoded_and_nullable(
    loading: Loading, folder: Path
) -> None:
    in_folders(
        folder,
        "day=2026-11-15/city=K%C3%B6ln%2FDeutz",
        "day=__HIVE_DEFAULT_PARTITION__/city=a=b",
        "city=%20",
    )
    more = (
        ", 'path_partition_keys' = 'day, city', 'schema' = 'id BIGINT, day DATE, city STRING'"
    )

    rows = loading.load(
        "SELECT id, day, city",
        files(folder / "**/*.json", more=more),
        columns="id BIGINT, day DATE, city STRING",
    )

    assert rows == [
        {"id": 0, "day": date(2026, 11, 15), "city": "Köln/Deutz"},
        {"id": 1, "day": None, "city": "a=b"},
        {"id": 2, "day": None, "city": " "},
    ]


def test_undeclared_path_values_are_strings_and_part_of_the_star(
    loading: Loading, folder: Path
) -> None:
    in_folders(folder, "day=2026-11-15/n=007")
    more = ", 'path_partition_keys' = 'day,n'"

    rows = loading.load(
        "SELECT *",
        files(folder / "**/*.json", more=more),
        columns="id BIGINT, n STRING, day STRING",
    )

    assert rows == [{"id": 0, "n": "007", "day": "2026-11-15"}]


def test_a_path_value_overrides_a_field_of_the_records(loading: Loading, folder: Path) -> None:
    write_rows(folder / "n=2/a.json", [{"id": 1, "n": 9}])
    more = ", 'path_partition_keys' = 'n', 'schema' = 'id BIGINT, n INT'"

    rows = loading.load(
        "SELECT id, n", files(folder / "**/*.json", more=more), columns="id BIGINT, n INT"
    )

    assert rows == [{"id": 1, "n": 2}]


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("other=1", ", 'missing_columns' = 'fail'", 'the path has no folder "n=…"'),
        ("n=x", "", 'column "n" in the path: expected INT, found "x"'),
    ],
)
def test_a_path_with_a_missing_or_wrong_value_pauses_the_job(
    *, loading: Loading, folder: Path, name: str, more: str, message: str
) -> None:
    in_folders(folder, "n=1", name)
    more += ", 'path_partition_keys' = 'n', 'schema' = 'id BIGINT, n INT'"

    rows = loading.load(
        "SELECT id, n", files(folder / "**/*.json", more=more), columns="id BIGINT, n INT"
    )

    assert rows == []
    reason = str(loading.node.show("j")["reason"])
    assert reason.startswith(f'FILE_ERR: file "{folder}/{name}/a.json": {message}')
    (folder / name).rename(folder / "n=3")
    loading.node.sql("RESUME JOB j")
    loading.node.run()
    assert [(row["id"], row["n"]) for row in loading.node.rows("t")] == [(0, 1), (1, 3)]


class RecordingWork:
    """A task function that records the parts of files in its tasks."""

    def __init__(self) -> None:
        self.parts: list[list[tuple[int, int]]] = []

    def __call__(self, task: str, try_id: str) -> str:
        reads = from_text(TaskPlan, task).read.reads
        parts = [from_text(FilePart, read.work) for read in reads]
        self.parts.append([(part.start, part.end) for part in parts])
        return run_task_text(task, try_id)


def large(folder: Path, kind: str) -> Path:
    """Write a file of about 10 MB whose rows 2 and 11,000 are bad."""
    path = folder / f"a.{kind}"
    bad = {1, LARGE_ROWS - 1_001}
    numbers = range(LARGE_ROWS)
    if kind == "json":
        lines = [f'{{"id": {n}, "note": "{FILLER}"}}' for n in numbers]
        path.write_text("\n".join("null" if n in bad else lines[n] for n in numbers))
    elif kind == "csv":
        path.write_text("".join(f"{'x' if n in bad else n}\t{FILLER}\n" for n in numbers))
    else:
        ids = ["x" if n in bad else str(n) for n in numbers]
        notes = [f"{n}{FILLER}" for n in numbers]
        table = pa.table({"id": ids, "note": notes})
        pq.write_table(
            table, path, row_group_size=1_000, compression="none", use_dictionary=False
        )
    assert path.stat().st_size > 9_000_000
    return path


GOOD = [n for n in range(LARGE_ROWS) if n not in (1, LARGE_ROWS - 1_001)]
BAD_LINES = [2, LARGE_ROWS - 1_000]


def bad_lines(node: Node) -> list[int]:
    assert node.tables is not None
    return sorted(
        row["line"] for row in read_table(node.tables.rejects_location(node.job("j").id))
    )


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_two_tasks_read_a_large_file_and_every_row_is_loaded_once(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    path = large(folder, kind)
    watching = RecordingWork()
    node = Node(tmp_path / "home", work=watching)
    source = files(path, kind=kind, more=", 'schema' = 'id BIGINT, note STRING'")

    rows = Loading(node=node).load("SELECT id", source, columns="id BIGINT", properties=LENIENT)

    ((first,), (second,)) = watching.parts
    assert (first[0], second) == (0, (first[1], path.stat().st_size))
    assert sorted(row["id"] for row in rows) == GOOD
    assert bad_lines(node) == BAD_LINES
    assert node.job("j").cumulative.rows_read == LARGE_ROWS
    node.catalog.close()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_a_file_is_not_split_when_rows_are_numbered(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    path = large(folder, kind)
    watching = RecordingWork()
    node = Node(tmp_path / "home", work=watching)
    source = files(path, kind=kind, more=", 'schema' = 'id BIGINT, note STRING'")

    rows = Loading(node=node).load(
        "SELECT id, _row", source, columns="id BIGINT, r BIGINT", properties=LENIENT
    )

    assert watching.parts == [[(0, path.stat().st_size)]]
    assert sorted(row["r"] for row in rows) == [n + 1 for n in GOOD]
    assert all(row["r"] == row["id"] + 1 for row in rows)
    assert bad_lines(node) == BAD_LINES
    node.catalog.close()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
@pytest.mark.parametrize("numbered", [False, True])
def test_a_large_file_loads_once_when_spark_runs_the_select(
    *, spark_node: Node, folder: Path, kind: str, numbered: bool
) -> None:
    path = large(folder, kind)
    source = files(path, kind=kind, more=", 'schema' = 'id BIGINT, note STRING'")
    row = "_row" if numbered else "id + 1"

    rows = Loading(node=spark_node, where=" WHERE length(note) > 1").load(
        f"SELECT id, {row}", source, columns="id BIGINT, r BIGINT", properties=LENIENT
    )

    assert sorted(row["id"] for row in rows) == GOOD
    assert all(row["r"] == row["id"] + 1 for row in rows)
    assert bad_lines(spark_node) == BAD_LINES
    counted = spark_node.job("j").cumulative
    assert (counted.rows_read, counted.rows_rejected) == (LARGE_ROWS, 2)
    assert counted.files_written == (1 if numbered else 2)
