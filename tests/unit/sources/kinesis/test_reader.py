"""The duration of an epoch is divided among the shards of a task."""

from datetime import timedelta

import pytest

from penstock.model.split import ReadLimits
from penstock.sources.kinesis.reader import limits_per_shard

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("shards", "rounds"), [(1, 1), (16, 1), (17, 2), (200, 13)])
def test_shards_that_wait_for_a_thread_do_not_prolong_the_epoch(
    shards: int, rounds: int
) -> None:
    limits = ReadLimits(records=1, size_bytes=1, duration=MINUTE, interval=timedelta(0))

    assert limits_per_shard(limits, shards=shards).duration == MINUTE / rounds
