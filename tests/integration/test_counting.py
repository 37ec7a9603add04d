"""Every record that was read is loaded, rejected, skipped or unselected, in every format."""

import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.epoch import Attachment, Statistics
from tests.node import Node, read_table

SCHEMA = "id BIGINT, price DOUBLE, day DATE, note STRING"
TABLE = "id INT NOT NULL, price FLOAT, day DATE, note STRING"
NAMES = ("id", "price", "day", "note")
LENIENT = "'session.enable_insert_strict' = 'false'"

# A value as a user would write it into a file, good or bad.
ids = st.sampled_from(["1", "2", "-7", "2147483647", "3000000000", "1e3", "x", "", "9" * 30])
prices = st.sampled_from(["1.5", "0", "-2e3", "1e300", "NaN", "y", "", "1e999"])
days = st.sampled_from(["2026-11-15", "0001-01-01", "2026-02-30", "today", ""])
notes = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r,"), max_size=4
)
records = st.tuples(ids, prices, days, notes)
good = st.tuples(st.just("1"), st.just("1.5"), st.just("2026-11-15"), st.just("fine"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How records are written to a file, and the options of the job for this format."""

    suffix: str
    options: str
    line: Callable[[tuple[str, ...]], Any]
    write: Callable[[list[Any]], bytes]
    lines: st.SearchStrategy[Any]


def json_line(record: tuple[str, ...]) -> bytes:
    """Return a JSON line; texts that are numbers become numbers."""
    values: list[Any] = [_number(record[0]), _number(record[1]), record[2] or None, record[3]]
    return json.dumps(dict(zip(NAMES, values, strict=True))).encode()


def _number(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def csv_line(record: tuple[str, ...]) -> bytes:
    return ",".join(record).encode()


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def with_names(lines: list[bytes]) -> bytes:
    return joined([b"ID,price,day,note", *lines])


def parquet(rows: list[tuple[str, ...]]) -> bytes:
    """Return a Parquet file of texts, which do not always fit the declared types."""
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    arrays = [pa.array([value or None for value in values], pa.string()) for values in columns]
    stream = io.BytesIO()
    table = pa.Table.from_arrays(arrays, names=list(NAMES))
    pq.write_table(table, stream, row_group_size=3)
    return stream.getvalue()


json_lines = st.one_of(
    good.map(json_line),
    records.map(json_line),
    st.sampled_from(
        [b"", b"  ", b"null", b"[1]", b'{"id": 1', b"{}", b'{"note": "\xff"}', b"\r"]
    ),
)
csv_lines = st.one_of(
    good.map(csv_line),
    records.map(csv_line),
    st.sampled_from(
        [b"", b"\r", b"1", b"1,2,2026-11-15,a,b,c", b"1,1,,\xff", b",,,", b"\xc3,"]
    ),
)
CSV = "'column_separator' = ',', "

KINDS = {
    "json": Kind(
        suffix="json",
        options="'format' = 'json'",
        line=json_line,
        write=joined,
        lines=json_lines,
    ),
    "csv": Kind(
        suffix="csv",
        options=f"{CSV}'format' = 'csv'",
        line=csv_line,
        write=joined,
        lines=csv_lines,
    ),
    "csv_with_names": Kind(
        suffix="csv",
        options=f"{CSV}'format' = 'csv_with_names'",
        line=csv_line,
        write=with_names,
        lines=csv_lines,
    ),
    "parquet": Kind(
        suffix="parquet",
        options="'format' = 'parquet'",
        line=tuple,
        write=parquet,
        lines=st.one_of(good, records),
    ),
    "gz": Kind(
        suffix="json.gz",
        options="'format' = 'json'",
        line=json_line,
        write=lambda lines: gzip.compress(joined(lines)),
        lines=json_lines,
    ),
}


def contents(kind: Kind) -> st.SearchStrategy[list[list[Any]]]:
    """Generate the records of some files, also empty files."""
    return st.lists(st.lists(kind.lines, max_size=20), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    """One node for all examples; each example has its own table and job."""
    with tempfile.TemporaryDirectory() as name:
        node = Node(Path(name) / "home")
        yield node
        node.catalog.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of an example: its counters, the table's rows and the rejects."""

    cumulative: Statistics
    epochs: list[Statistics]
    shown_rows: int
    rows: list[dict[str, Any]]
    rejects: list[dict[str, Any]]


def load(node: Node, kind: Kind, files: list[list[Any]]) -> Loaded:
    """Load the files, two per epoch, and remove everything afterwards."""
    assert node.tables is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, lines in enumerate(files):
            (folder / f"{number}.{kind.suffix}").write_bytes(kind.write(lines))
        node.sql(
            f"CREATE TABLE t ({TABLE}); CREATE JOB j "  # noqa: S608 - Our own SQL.
            f"PROPERTIES({LENIENT}, "
            "'s3.max_batch_files' = '2') ON STREAMING DO INSERT INTO t "
            f"SELECT * FROM FILES('uri' = 'file://{folder}/*.{kind.suffix}', "
            f"{kind.options}, 'schema' = '{SCHEMA}')"
        )
        node.run()
    state = node.job("j")
    rejects = Path(node.tables.rejects_location(state.id))
    epochs = [row for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    loaded = Loaded(
        cumulative=state.cumulative,
        epochs=[attachment.statistics for attachment in commits(node)],
        shown_rows=sum(int(str(row["rows"])) for row in epochs),
        rows=node.rows("t"),
        rejects=read_table(str(rejects)) if rejects.exists() else [],
    )
    assert str(node.show("j")["reason"]) == ""
    node.sql("DROP JOB j; DROP TABLE t")
    return loaded


def commits(node: Node) -> list[Attachment]:
    """Return the job's epochs from the table's log."""
    assert node.tables is not None
    state = node.job("j")
    handle = node.tables.open(state.definition.table.location)
    chain = [commit.attachment for commit in handle.chain_after(state.id, 0)]
    return [attachment for attachment in chain if attachment.kind == "epoch"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_t27_every_record_read_is_loaded_rejected_skipped_or_unselected(
    shared: Node, kind: Kind, data: st.DataObject
) -> None:
    files = data.draw(contents(kind))

    loaded = load(shared, kind, files)

    counted = loaded.cumulative
    assert counted.rows_read == sum(len(lines) for lines in files)
    assert counted.rows_read == (
        counted.rows_loaded
        + counted.rows_rejected
        + counted.rows_skipped
        + counted.rows_unselected
    )
    assert counted.rows_unselected == 0
    assert all(epoch.balanced for epoch in [counted, *loaded.epochs])
    assert len(loaded.rows) == counted.rows_loaded
    assert len(loaded.rejects) == counted.rows_rejected
    stages = [row["stage"] for row in loaded.rejects]
    assert stages.count("writer") == counted.rows_misfit
    assert counted == reduce(add, loaded.epochs)
    assert counted.rows_loaded == loaded.shown_rows
    assert len(loaded.epochs) == (len(files) + 1) // 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_t27_a_mixed_file_is_counted_as_a_user_would_count(shared: Node, kind: Kind) -> None:
    fine = ("1", "1.5", "2026-11-15", "fine")
    misfit = ("3000000000", "1.5", "2026-11-15", "too large for the table")
    unreadable = ("1", "1.5", "today", "no date")
    lines = [kind.line(row) for row in (fine, misfit, fine, unreadable)]

    loaded = load(shared, kind, [lines])

    counted = loaded.cumulative
    assert (counted.rows_read, counted.rows_loaded) == (4, 2)
    assert (counted.rows_rejected, counted.rows_misfit) == (2, 1)


@pytest.mark.integration
def test_t27_rows_that_a_where_filters_out_are_unselected(
    spark_node: Node, folder: Path
) -> None:
    lines = [json_line((str(number), "1.5", "2026-11-15", "fine")) for number in range(10)]
    (folder / "a.json").write_bytes(joined([*lines, b"null", b""]))
    spark_node.sql(
        f"CREATE TABLE t ({TABLE}); CREATE JOB j "  # noqa: S608 - Our own SQL.
        f"PROPERTIES({LENIENT}) ON STREAMING DO "
        "INSERT INTO t SELECT if(id = 9, 3000000000, id), price, day, note FROM "
        f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json', 'schema' = '{SCHEMA}') "
        "WHERE id >= 4"
    )

    spark_node.run()

    counted = spark_node.job("j").cumulative
    assert (counted.rows_read, counted.rows_skipped, counted.rows_parsed) == (12, 1, 10)
    assert (counted.rows_unselected, counted.rows_produced) == (4, 6)
    assert (counted.rows_rejected, counted.rows_misfit, counted.rows_loaded) == (2, 1, 5)
    assert len(spark_node.rows("t")) == 5
