"""State of every record, and the position after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.split import After, Horizon, Position
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.sources.kinesis.records import (
    Item,
    RecordState,
    StreamRecord,
    SubRecord,
    items_of,
)
from tests.error_values import assert_names
from tests.unit.sources.kinesis.aggregates import bytes_field, number_field, packed, with_digest

ARRIVED = 1_794_700_800.0
HALF = 2**127


def record(sequence: str, data: bytes) -> StreamRecord:
    return StreamRecord(sequence=sequence, partition_key="k", data=data, arrived_at=ARRIVED)


def sub(data: bytes, *, hash_key: int = 0, key: str = "k") -> SubRecord:
    return SubRecord(partition_key=key, data=data, explicit_hash_key=str(hash_key))


def items(
    *records: StreamRecord,
    start: Position | None = None,
    foreign: ForeignRecords = ForeignRecords.REJECT,
) -> list[Item]:
    keys = (0, HALF - 1)
    return list(items_of(records, start=start or Horizon(), hash_keys=keys, foreign=foreign))


def summaries(found: list[Item]) -> list[tuple[bytes, RecordState, After]]:
    return [(item.record.data, item.state, item.after) for item in found]


def test_plain_records_are_loaded_and_empty_records_are_skipped() -> None:
    assert summaries(items(record("1", b"x"), record("2", b""))) == [
        (b"x", RecordState.LOADED, After(value="1")),
        (b"", RecordState.SKIPPED, After(value="2")),
    ]


def test_t76_sub_records_of_an_aggregate_have_positions_inside_the_record() -> None:
    found = items(record("1", packed(sub(b"a"), sub(b"b"), sub(b""))), record("2", b"c"))

    assert summaries(found) == [
        (b"a", RecordState.LOADED, After(value="1", sub=0)),
        (b"b", RecordState.LOADED, After(value="1", sub=1)),
        (b"", RecordState.SKIPPED, After(value="1")),
        (b"c", RecordState.LOADED, After(value="2")),
    ]


def test_t77_sub_records_before_the_start_position_are_skipped() -> None:
    aggregate = packed(sub(b"a"), sub(b"b"), sub(b"c"))

    found = items(record("1", aggregate), start=After(value="1", sub=1))

    assert summaries(found) == [(b"c", RecordState.LOADED, After(value="1"))]


def test_t77_no_sub_record_is_skipped_if_the_record_at_the_position_was_trimmed() -> None:
    aggregate = packed(sub(b"a"), sub(b"b"))

    found = items(record("2", aggregate), start=After(value="1", sub=1))

    assert [item.record.data for item in found] == [b"a", b"b"]


def test_t77_a_broken_aggregate_is_rejected_as_one_record() -> None:
    bad = with_digest(bytes_field(3, number_field(1, 5) + bytes_field(3, b"x")))

    (found,) = items(record("1", bad))

    assert (found.state, found.record.data, found.after) == (
        RecordState.REJECTED,
        bad,
        After(value="1"),
    )
    assert_names(found.error, "partition key", "5")


def test_t77_an_empty_aggregate_advances_the_position() -> None:
    (found,) = items(record("1", packed()))

    assert (found.state, found.after) == (RecordState.SKIPPED, After(value="1"))


@pytest.mark.parametrize(
    ("foreign", "state"),
    [
        (ForeignRecords.REJECT, RecordState.FOREIGN),
        (ForeignRecords.LOAD, RecordState.LOADED),
        (ForeignRecords.SKIP, RecordState.SKIPPED),
    ],
)
def test_t76_the_option_decides_about_a_record_of_another_shard(
    foreign: ForeignRecords, state: RecordState
) -> None:
    aggregate = packed(sub(b"mine", hash_key=HALF - 1), sub(b"not", hash_key=HALF, key="far"))

    mine, other = items(record("1", aggregate), foreign=foreign)

    assert (mine.state, other.state) == (RecordState.LOADED, state)
    assert ('"far"' in other.error) is (state is RecordState.FOREIGN)
    assert bool(other.error) is (state is RecordState.FOREIGN)


CONTENTS = st.lists(
    st.binary(max_size=4)
    | st.lists(st.builds(sub, st.binary(max_size=4)), max_size=4).map(lambda s: packed(*s)),
    min_size=1,
    max_size=6,
)


@given(contents=CONTENTS, cut=st.integers(0, 30))
def test_reading_can_stop_after_any_item_and_continues_with_the_next(
    contents: list[bytes], cut: int
) -> None:
    records = [record(str(number), data) for number, data in enumerate(contents)]
    whole = items(*records)
    before = whole[: cut % len(whole) + 1]

    position = before[-1].after
    first = int(position.value) + (position.sub is None)
    after = items(*records[first:], start=position)

    assert before + after == whole
