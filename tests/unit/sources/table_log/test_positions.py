"""Positions of a table log: text, order, start, and the bounds of event times."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Code, InvariantError, UserError
from penstock.model.split import Horizon
from penstock.sources.table_log.kind import (
    LogPosition,
    Phase,
    file_work,
    log_position,
    parse_position,
    position_after,
)
from penstock.tables.log import read_commit
from penstock.tables.table import SnapshotFile
from tests.error_values import raises
from tests.unit.sources.table_log.building import Table, positions, started

numbers = st.integers(min_value=0, max_value=10**12)
any_position = st.builds(
    LogPosition, phase=st.sampled_from(Phase), version=numbers, index=numbers
)


@given(position=any_position)
def test_a_stored_position_is_read_back(position: LogPosition) -> None:
    assert parse_position(position.stored) == position


@given(one=any_position, other=any_position)
def test_every_snapshot_is_before_the_log(one: LogPosition, other: LogPosition) -> None:
    before = one.order < other.order

    numbers_before = (one.version, one.index) < (other.version, other.index)
    rank = list(Phase).index
    expected = (
        rank(one.phase) < rank(other.phase) if one.phase != other.phase else numbers_before
    )
    assert before == expected


@given(position=any_position, files=numbers)
def test_the_position_after_a_file_is_later(position: LogPosition, files: int) -> None:
    after = position_after(position, files=files)

    assert after.order > position.order


def test_the_log_follows_the_last_file_of_a_version() -> None:
    snapshot = LogPosition(phase=Phase.SNAPSHOT, version=7, index=1)

    assert position_after(snapshot, files=3).stored.value == "SNAPSHOT 7.2"
    assert position_after(snapshot, files=2).stored.value == "LOG 8.0"


def test_a_position_of_another_kind_is_a_violated_invariant() -> None:
    with pytest.raises(InvariantError):
        parse_position(Horizon())


def data_file(low: str, high: str, **partition: str) -> SnapshotFile:
    statistics = f'{{"minValues":{{"at":"{low}"}},"maxValues":{{"at":"{high}"}}}}'
    return SnapshotFile(
        path="x",
        size_bytes=1,
        partition_values=tuple(partition.items()),
        statistics_json=statistics,
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("1970-01-01T00:00:01.000Z", "1970-01-01T00:00:02.000Z", (1000, 1999)),
        ("1970-01-01 00:00:01.000900", "1970-01-01 00:00:02.000900", (1000, 2000)),
        ("1969-12-31T23:59:59.999Z", "1970-01-01", (-1, -1)),
        ("+12026-01-01T00:00:00Z", "", (None, None)),
    ],
)
def test_the_bounds_of_the_event_time_contain_no_rounding(
    low: str, high: str, expected: tuple[int | None, int | None]
) -> None:
    work = file_work(data_file(low, high), "at")

    assert (work.low_ms, work.high_ms) == expected


def test_a_partition_value_is_a_bound_of_the_event_time() -> None:
    work = file_work(data_file("", "", day="1970-01-02"), "day")

    assert (work.low_ms, work.high_ms) == (86_400_000, 86_399_999)


def test_a_table_without_an_event_time_has_no_bounds() -> None:
    work = file_work(data_file("1970-01-01", "1970-01-01"), None)

    assert (work.low_ms, work.high_ms) == (None, None)


@pytest.mark.parametrize(
    ("starting", "position"),
    [
        ("earliest", "SNAPSHOT 2.0"),
        ("latest", "LOG 3.0"),
        ("VERSION 1", "LOG 1.0"),
        ("version 3", "LOG 3.0"),
        ("timestamp '2000-01-01'", "LOG 0.0"),
        ("TIMESTAMP '2999-01-01 00:00:00'", "LOG 3.0"),
    ],
)
def test_the_start_is_resolved_once(starting: str, position: str, tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append_each(1, 2)

    progress = started(table.tables, table.stream(), starting=starting)

    assert positions(progress) == [position]
    assert progress[0].identity == table.ref.id


def test_reading_starts_at_the_first_commit_at_or_after_a_time(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for hour in (10, 11, 12):
        at = datetime(2026, 1, 1, hour, tzinfo=UTC)
        table.write_entry({"commitInfo": {"timestamp": at.timestamp() * 1000}})
    folder = table.tables.folder(table.ref.location)

    first = read_commit(folder, 2)

    assert first is not None
    since = first.committed_at - timedelta(minutes=1)
    progress = started(table.tables, table.stream(), starting=f"timestamp '{since}'")
    assert positions(progress) == ["LOG 2.0"]


def test_an_empty_snapshot_is_not_read(tmp_path: Path) -> None:
    table = Table(tmp_path)

    progress = started(table.tables, table.stream(), starting="earliest")

    assert positions(progress) == [log_position(1).stored.value]


@pytest.mark.parametrize("starting", ["first", "version x", "timestamp 'noon'", "timestamp 1"])
def test_an_unknown_start_is_refused(starting: str, tmp_path: Path) -> None:
    table = Table(tmp_path)

    with raises(UserError, Code.OPTION_ERR, starting, hint=("version",)):
        started(table.tables, table.stream(), starting=starting)


@pytest.mark.parametrize("starting", ["version 0", "version 5", "timestamp '2000-01-01'"])
def test_a_start_that_the_log_does_not_have_is_refused(starting: str, tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append_each(1, 2)
    table.clean_log(0)

    with raises(UserError, Code.META_NOT_FOUND_ERR, hint=("2",)):
        started(table.tables, table.stream(), starting=starting)
