"""Ranges of a Parquet file read every row once; a bad row does not affect other rows."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError, Wanted
from penstock.sources.formats.parquet_reader import read_parquet

DECLARED: dict[str, pa.DataType] = {"id": pa.int64(), "qty": pa.int8(), "note": pa.string()}
WRITTEN: dict[str, pa.DataType] = {"id": pa.string(), "qty": pa.int64(), "note": pa.string()}
COLUMNS = pa.schema(DECLARED)
texts = (
    st.none() | st.integers(-200, 200).map(str) | st.sampled_from(["x", "1.5", "", "9" * 25])
)
records = st.lists(
    st.fixed_dictionaries(
        {"id": texts, "qty": st.none() | st.integers(-300, 300), "note": texts}
    ),
    max_size=40,
)


def parquet(rows: list[dict[str, Any]], *, row_group_rows: int) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=pa.schema(WRITTEN))
    pq.write_table(table, sink, row_group_size=row_group_rows)
    return sink.getvalue()


def read(content: bytes, *, start: int = 0, end: int | None = None) -> list[RecordBlock]:
    blocks = read_parquet(
        io.BytesIO(content),
        wanted=Wanted(columns=COLUMNS, names=("id", "qty", "note"), rescue=True),
        start=start,
        end=end,
    )
    return list(blocks)


def results(blocks: list[RecordBlock]) -> list[object]:
    """Return the values or the error of every row, in order."""
    found: list[object] = []
    for block in blocks:
        result_by_line: dict[int, object] = {bad.record: bad.error for bad in block.bad}
        for row, values in enumerate(block.batch.to_pylist()):
            result_by_line[int(block.record_of_row[row])] = tuple(values.items())
        assert len(result_by_line) == block.lines
        found += [result_by_line[line] for line in sorted(result_by_line)]
    return found


@settings(deadline=None, max_examples=100)
@given(
    rows=records,
    row_group_rows=st.integers(1, 9),
    split_points=st.sets(st.integers(1, 6000), max_size=5),
)
def test_any_ranges_read_every_row_once(
    rows: list[dict[str, Any]], row_group_rows: int, split_points: set[int]
) -> None:
    content = parquet(rows, row_group_rows=row_group_rows)
    edges = [0, *sorted(split_points)]

    parts = [
        read(content, start=start, end=end)
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]

    assert [result for part in parts for result in results(part)] == results(read(content))
    assert len(results(read(content))) == len(rows)


@settings(deadline=None, max_examples=60)
@given(rows=records)
def test_the_result_of_a_row_does_not_depend_on_its_neighbours(
    rows: list[dict[str, Any]],
) -> None:
    together = results(read(parquet(rows, row_group_rows=100)))

    alone = [results(read(parquet([row], row_group_rows=1)))[0] for row in rows]

    assert together == alone


VALID = parquet(
    [{"id": str(n), "qty": n, "note": "text"} for n in range(50)], row_group_rows=20
)


@settings(deadline=None, max_examples=600)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4
    ),
    size_bytes=st.integers(0, len(VALID)) | st.just(len(VALID)),
)
def test_a_damaged_file_is_read_or_reported_as_unreadable(
    changes: list[tuple[int, int]], size_bytes: int
) -> None:
    content = bytearray(VALID)
    for at, octet in changes:
        content[at] = octet

    try:
        blocks = read(bytes(content[:size_bytes]))
    except UnreadableFileError:
        return

    assert all(block.lines == block.batch.num_rows + len(block.bad) for block in blocks)
