"""Start options of a stream: parsing of times and time zones."""

from datetime import UTC, datetime

import pytest

from penstock.errors import Code, UserError
from penstock.model.split import AtTime
from penstock.sources.kinesis.start import (
    DEFAULT_POSITION,
    POSITIONS,
    SHARD_POSITIONS,
    TIMESTAMP,
    read_positions,
    read_start,
)
from tests.error_values import raises

TEN = datetime(2026, 11, 15, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2026-11-15 10:00:00", "UTC"),
        ("2026-11-15 05:00:00", "America/New_York"),
        ("2026-11-15 15:30:00", "+05:30"),
        ("2026-11-15T12:00:00+02:00", "America/New_York"),
    ],
)
def test_a_time_without_an_offset_is_in_the_time_zone_of_the_load(text: str, zone: str) -> None:
    for_all = [
        read_start({key: text}, shards=(), zone=zone) for key in (DEFAULT_POSITION, TIMESTAMP)
    ]
    for_one = read_start({SHARD_POSITIONS: text}, shards=("a",), zone=zone)
    typed = read_positions(f'{{"a": "TIME {text}"}}', zone=zone)

    assert [start and start.default for start in for_all] == [AtTime(at=TEN)] * 2
    assert for_one is not None
    assert for_one.by_shard == typed == {"a": AtTime(at=TEN)}


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("9999-12-31 23:59:59", "America/New_York"),
        ("0001-01-01 00:00:00", "Europe/Berlin"),
        ("9999-12-31T23:59:59-01:00", "UTC"),
    ],
)
@pytest.mark.parametrize("key", [DEFAULT_POSITION, SHARD_POSITIONS, TIMESTAMP, POSITIONS])
def test_a_time_outside_the_supported_range_is_refused(key: str, text: str, zone: str) -> None:
    written = f'{{"a": "TIME {text}"}}' if key == POSITIONS else text

    with raises(UserError, Code.OPTION_ERR, f'"{key}"', text):
        read_start({key: written}, shards=("a",), zone=zone)
