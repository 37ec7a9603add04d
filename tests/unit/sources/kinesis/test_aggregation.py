"""Aggregated records, and plain records with similar bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.kinesis.records import MAGIC, BrokenAggregateError, SubRecord, unpack
from tests.error_values import assert_names
from tests.unit.sources.kinesis.aggregates import (
    bytes_field,
    number_field,
    packed,
    varint,
    with_digest,
)

RECORDS = st.builds(
    SubRecord,
    partition_key=st.text(max_size=20),
    data=st.binary(max_size=300),
    explicit_hash_key=st.none() | st.integers(0, 2**128 - 1).map(str),
)
KEY = bytes_field(1, b"k")


@given(records=st.lists(RECORDS, max_size=8))
def test_unpacking_returns_the_packed_records(records: list[SubRecord]) -> None:
    assert unpack(packed(*records)) == tuple(records)


@given(data=st.binary(max_size=100))
def test_bytes_without_the_magic_number_are_a_plain_record(data: bytes) -> None:
    assert data.startswith(MAGIC) or unpack(data) is None


@given(message=st.binary(max_size=60))
def test_any_message_is_an_aggregate_a_plain_record_or_broken(message: bytes) -> None:
    try:
        found = unpack(with_digest(message))
    except BrokenAggregateError:
        return
    assert found is None or all(isinstance(record, SubRecord) for record in found)


def test_t77_an_aggregate_with_a_wrong_checksum_is_a_plain_record() -> None:
    data = packed(SubRecord(partition_key="k", data=b"x"))

    assert unpack(data[:-1] + bytes([data[-1] ^ 1])) is None


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\xff", id="ends inside a number"),
        pytest.param(b"\xff" * 11, id="number too long"),
        pytest.param(bytes_field(1, b"key")[:-1], id="ends inside a field"),
        pytest.param(varint(1 << 3 | 3), id="a group"),
        pytest.param(varint(2), id="field 0"),
        pytest.param(bytes_field(1, b"\xff"), id="a key that is not UTF-8"),
        pytest.param(number_field(3, 1), id="a record that is a number"),
        pytest.param(varint(9 << 3 | 1) + b"1234567", id="ends inside eight bytes"),
    ],
)
def test_t77_an_invalid_message_is_a_plain_record(message: bytes) -> None:
    assert unpack(with_digest(message)) is None


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (bytes_field(3, number_field(1, 0) + bytes_field(3, b"x")), ("partition key", "0")),
        (KEY + bytes_field(3, number_field(1, 1) + bytes_field(3, b"x")), ("1",)),
        (KEY + bytes_field(3, bytes_field(3, b"x")), ("None",)),
        (KEY + bytes_field(3, number_field(1, 0)), ("data",)),
        (
            KEY + bytes_field(3, number_field(1, 0) + number_field(2, 0) + bytes_field(3, b"")),
            ("explicit hash key", "0"),
        ),
        (
            KEY
            + bytes_field(2, b"-1")
            + bytes_field(3, number_field(1, 0) + number_field(2, 0) + bytes_field(3, b"")),
            ('"-1"',),
        ),
    ],
)
def test_t77_a_record_with_a_bad_index_breaks_the_whole_aggregate(
    message: bytes, named: tuple[str, ...]
) -> None:
    good = bytes_field(1, b"good") + bytes_field(3, number_field(1, 0) + bytes_field(3, b"y"))

    with pytest.raises(BrokenAggregateError) as caught:
        unpack(with_digest(message))

    assert_names(str(caught.value), *named)
    with pytest.raises(BrokenAggregateError):
        unpack(with_digest(message + good.replace(b"\x08\x00", b"\x08\x09")))


def test_t77_an_empty_aggregate_has_no_records() -> None:
    assert unpack(packed()) == ()
    assert unpack(with_digest(KEY)) == ()


def test_unknown_fields_of_a_newer_producer_are_skipped() -> None:
    record = SubRecord(partition_key="k", data=b"x")
    newer = (
        varint(7 << 3 | 1) + b"12345678" + varint(8 << 3 | 5) + b"1234" + bytes_field(9, b"?")
    )

    message = packed(record)[len(MAGIC) : -16]

    assert unpack(with_digest(newer + message)) == (record,)


def test_the_hash_key_is_the_explicit_one_or_the_hash_of_the_partition_key() -> None:
    hashed = SubRecord(partition_key="a", data=b"")
    explicit = SubRecord(partition_key="a", data=b"", explicit_hash_key="7")

    assert hashed.hash_key == 0x0CC175B9C0F1B6A831C399E269772661
    assert explicit.hash_key == 7
