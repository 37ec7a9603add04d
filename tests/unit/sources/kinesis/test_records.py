"""What becomes of every record, and where a reading that ends behind it goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.split import After, Horizon, Position
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.sources.kinesis.records import Fate, Item, StreamRecord, SubRecord, items_of
from tests.error_values import assert_names
from tests.unit.sources.kinesis.aggregates import bytes_field, number_field, packed, sealed

ARRIVED = 1_794_700_800.0
HALF = 2**127


def record(sequence: str, data: bytes) -> StreamRecord:
    return StreamRecord(sequence=sequence, partition_key="k", data=data, arrived_at=ARRIVED)


def sub(data: bytes, *, hash_key: int = 0, key: str = "k") -> SubRecord:
    return SubRecord(partition_key=key, data=data, explicit_hash_key=str(hash_key))


def items(
    *records: StreamRecord,
    begun: Position | None = None,
    foreign: ForeignRecords = ForeignRecords.REJECT,
) -> list[Item]:
    keys = (0, HALF - 1)
    return list(items_of(records, begun=begun or Horizon(), hash_keys=keys, foreign=foreign))


def told(found: list[Item]) -> list[tuple[bytes, Fate, After]]:
    return [(item.record.data, item.fate, item.after) for item in found]


def test_plain_records_are_loaded_and_empty_ones_are_passed_over() -> None:
    assert told(items(record("1", b"x"), record("2", b""))) == [
        (b"x", Fate.LOADED, After(value="1")),
        (b"", Fate.SKIPPED, After(value="2")),
    ]


def test_t76_records_inside_another_come_one_by_one_with_positions_inside_it() -> None:
    found = items(record("1", packed(sub(b"a"), sub(b"b"), sub(b""))), record("2", b"c"))

    assert told(found) == [
        (b"a", Fate.LOADED, After(value="1", sub=0)),
        (b"b", Fate.LOADED, After(value="1", sub=1)),
        (b"", Fate.SKIPPED, After(value="1")),
        (b"c", Fate.LOADED, After(value="2")),
    ]


def test_t77_what_was_taken_of_the_first_record_is_passed_over() -> None:
    aggregate = packed(sub(b"a"), sub(b"b"), sub(b"c"))

    found = items(record("1", aggregate), begun=After(value="1", sub=1))

    assert told(found) == [(b"c", Fate.LOADED, After(value="1"))]


def test_t77_nothing_is_passed_over_when_the_record_was_trimmed_meanwhile() -> None:
    aggregate = packed(sub(b"a"), sub(b"b"))

    found = items(record("2", aggregate), begun=After(value="1", sub=1))

    assert [item.record.data for item in found] == [b"a", b"b"]


def test_t77_a_broken_aggregate_is_rejected_whole() -> None:
    bad = sealed(bytes_field(3, number_field(1, 5) + bytes_field(3, b"x")))

    (found,) = items(record("1", bad))

    assert (found.fate, found.record.data, found.after) == (
        Fate.REJECTED,
        bad,
        After(value="1"),
    )
    assert_names(found.error, "partition key", "5")


def test_t77_an_aggregate_of_nothing_moves_the_position() -> None:
    (found,) = items(record("1", packed()))

    assert (found.fate, found.after) == (Fate.SKIPPED, After(value="1"))


@pytest.mark.parametrize(
    ("foreign", "fate"),
    [
        (ForeignRecords.REJECT, Fate.FOREIGN),
        (ForeignRecords.LOAD, Fate.LOADED),
        (ForeignRecords.SKIP, Fate.SKIPPED),
    ],
)
def test_t76_a_record_of_another_shard_has_the_fate_that_was_asked_for(
    foreign: ForeignRecords, fate: Fate
) -> None:
    aggregate = packed(sub(b"mine", hash_key=HALF - 1), sub(b"not", hash_key=HALF, key="far"))

    mine, other = items(record("1", aggregate), foreign=foreign)

    assert (mine.fate, other.fate) == (Fate.LOADED, fate)
    assert ('"far"' in other.error) is (fate is Fate.FOREIGN)
    assert bool(other.error) is (fate is Fate.FOREIGN)


CONTENTS = st.lists(
    st.binary(max_size=4)
    | st.lists(st.builds(sub, st.binary(max_size=4)), max_size=4).map(lambda s: packed(*s)),
    min_size=1,
    max_size=6,
)


@given(contents=CONTENTS, cut=st.integers(0, 30))
def test_a_reading_that_ends_anywhere_goes_on_with_the_next_item(
    contents: list[bytes], cut: int
) -> None:
    records = [record(str(number), data) for number, data in enumerate(contents)]
    whole = items(*records)
    before = whole[: cut % len(whole) + 1]

    behind = before[-1].after
    begins = int(behind.value) + (behind.sub is None)
    after = items(*records[begins:], begun=behind)

    assert before + after == whole
