"""Tasks read whole data files: columns, types, event times, lost files."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.model.codec import from_text
from penstock.model.schema import Array, Column, Map, Primitive, Struct
from penstock.sources.table_log.kind import FileResult, with_times
from tests.error_values import raises
from tests.unit.sources.table_log.building import COLUMNS, NOON, StreamingJob, Table

NOON_MS = int(NOON.timestamp() * 1000)


def test_the_needed_columns_are_read_in_their_order(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append_at(0)
    job = StreamingJob(tmp_path, table.stream())

    _, rows = job.read(job.plan(job.polled()).reads, "at", "id")

    assert [list(row.items()) for row in rows] == [[("at", NOON), ("id", 0)]]


@pytest.mark.parametrize("value", ["a/b c", "ä=%20", None])
def test_partition_columns_have_their_values_in_snapshot_and_log(
    value: str | None, tmp_path: Path
) -> None:
    columns = (COLUMNS[0], Column(name="shop", type=Primitive.STRING))
    table = Table(tmp_path, columns=columns, partition_by=("shop",))
    table.append({"id": 1, "shop": value})
    job = StreamingJob(tmp_path, table.stream(event_time=None))
    table.append({"id": 2, "shop": value})

    _, rows = job.read(job.plan(job.polled()).reads, "shop", "id")

    assert rows == [{"shop": value, "id": 1}, {"shop": value, "id": 2}]


def test_a_read_of_only_a_partition_column_returns_every_row(tmp_path: Path) -> None:
    columns = (COLUMNS[0], Column(name="day", type=Primitive.DATE))
    table = Table(tmp_path, columns=columns, partition_by=("day",))
    table.append({"id": 1, "day": NOON.date()}, {"id": 2, "day": NOON.date()})
    job = StreamingJob(tmp_path, table.stream(event_time="day"))

    notes, rows = job.read(job.plan(job.polled()).reads, "day")

    midnight = NOON_MS - 12 * 3_600_000
    result = FileResult(rows=2, low_ms=midnight, high_ms=midnight)
    assert rows == [{"day": NOON.date()}] * 2
    assert from_text(FileResult, notes[0].result) == result


def test_nested_values_are_read(tmp_path: Path) -> None:
    point = Struct(fields=(Column(name="x", type=Primitive.INT),))
    columns = (
        Column(name="points", type=Array(element=point)),
        Column(name="sizes", type=Map(key=Primitive.STRING, value=Primitive.BIGINT)),
    )
    table = Table(tmp_path, columns=columns)
    row = {"points": [{"x": 1}, {"x": None}], "sizes": [("a", 1)]}
    table.append(row)
    job = StreamingJob(tmp_path, table.stream(event_time=None))

    _, rows = job.read(job.plan(job.polled()).reads, "points", "sizes")

    assert rows == [row]


def test_a_note_has_the_rows_and_the_bounds_of_the_event_time(tmp_path: Path) -> None:
    table = Table(tmp_path)
    late = NOON + timedelta(milliseconds=7, microseconds=900)
    table.append({"id": 1, "at": late}, {"id": 2, "at": NOON}, {"id": 3, "at": None})
    job = StreamingJob(tmp_path, table.stream())

    notes, _ = job.read(job.plan(job.polled()).reads)

    result = FileResult(rows=3, low_ms=NOON_MS, high_ms=NOON_MS + 7)
    assert [from_text(FileResult, note.result) for note in notes] == [result]
    assert notes[0].counts.rows_read == 3


def test_s23_rows_up_to_the_watermark_are_late(tmp_path: Path) -> None:
    table = Table(tmp_path)
    after = NOON + timedelta(microseconds=1)
    table.append({"id": 1, "at": NOON}, {"id": 2, "at": after}, {"id": 3, "at": None})
    job = StreamingJob(tmp_path, table.stream())
    (read,) = job.plan(job.polled()).reads

    notes, _ = job.read([with_times(read, watermark_ms=NOON_MS, high_max_ms=10**15)])

    assert from_text(FileResult, notes[0].result).late_rows == 1


def test_the_highest_event_time_of_a_note_is_the_highest_that_counts(tmp_path: Path) -> None:
    table = Table(tmp_path)
    future = NOON + timedelta(days=30_000)
    table.append({"id": 1, "at": NOON}, {"id": 2, "at": future}, {"id": 3, "at": None})
    job = StreamingJob(tmp_path, table.stream())
    (read,) = job.plan(job.polled()).reads

    notes, _ = job.read([with_times(read, watermark_ms=0, high_max_ms=NOON_MS + 1)])

    result = FileResult(rows=3, low_ms=NOON_MS, high_ms=NOON_MS, late_rows=0)
    assert from_text(FileResult, notes[0].result) == result


def test_a_lost_data_file_is_reported_with_the_version(tmp_path: Path) -> None:
    table = Table(tmp_path)
    job = StreamingJob(tmp_path, table.stream())
    table.append_each(1, 2)
    (_, lost) = job.plan(job.polled()).reads
    (table.path / lost.shown).unlink()

    with raises(UserError, Code.CANNOT_RESUME_ERR, "events", 2, lost.shown):
        job.read([lost])
