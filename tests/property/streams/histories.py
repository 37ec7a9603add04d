"""Hypothesis strategies for random histories."""

from itertools import chain

from hypothesis import strategies as st

from penstock.crashpoints import CrashPoint
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.testing.memory_tables import Fault
from tests.property.streams.steps import (
    KEYS,
    At,
    Content,
    Crash,
    CrashAt,
    EmptyPages,
    Expire,
    FailRequests,
    History,
    MalformedResponse,
    Merge,
    Pause,
    Put,
    PutAggregate,
    Run,
    Setup,
    Split,
    Stale,
    Start,
    Step,
    Trim,
    Wait,
)
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd

SCENES_MAX = 3
REQUESTS = st.integers(1, 25)
# The retention is a day, so the lag of older records is near the retention.
NEARLY_A_DAY = Wait(22 * 3600)
THROTTLED = ("ProvisionedThroughputExceededException", "InternalFailure")
# Bodies that are similar to the end of a shard, or lack all fields.
MALFORMED = (
    "{}",
    '{"Records": []}',
    '{"NextShardIterator": "x"}',
    '{"Records": [], "NextShardIterator": "x"}',
)
POINTS = (
    CrashPoint.EPOCH_STARTED,
    CrashPoint.TASK_WRITTEN,
    CrashPoint.RUN_FINISHED,
    CrashPoint.COMMIT_CHECKED,
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.CATALOG_APPLIED,
    CrashPoint.COPY_WRITTEN,
    CrashPoint.RECOVERY_FENCED,
)

setups = st.builds(
    Setup,
    shards=st.sampled_from([1, 1, 2, 3]),
    start=st.sampled_from([Start.TRIM_HORIZON, *Start]),
    rows_max=st.integers(1, 5) | st.just(100),
    tasks_max=st.sampled_from([1, 2, 8]),
    page_records_max=st.sampled_from([1, 2, 10_000]),
    page_shards_max=st.sampled_from([1, 2, 1_000]),
    foreign=st.sampled_from([ForeignRecords.REJECT, *ForeignRecords]),
    shard_end=st.sampled_from(ShardEnd),
)
keys = st.text(KEYS, min_size=1, max_size=5)
puts = st.one_of(
    st.builds(Put, keys),
    st.builds(PutAggregate, keys, st.booleans()),
    st.builds(Put, keys, st.sampled_from(Content)),
)
reshards = st.builds(Split, st.integers(0, 5)) | st.builds(Merge, st.integers(0, 5))
faults = st.one_of(
    st.just(Expire()),
    st.builds(
        FailRequests,
        st.sampled_from(["GetRecords", "GetShardIterator", "ListShards"]),
        st.sampled_from(THROTTLED),
        st.integers(1, 3),
    ),
    st.builds(MalformedResponse, st.sampled_from(MALFORMED), st.sampled_from([1, 1, 2])),
    st.builds(Stale, st.integers(1, 3), st.sampled_from(StaleListing)),
    st.builds(EmptyPages, st.integers(0, 2), st.integers(0, 2)),
)
times = st.builds(Wait, st.sampled_from([1, 61, 400]))
actions = st.one_of(puts, puts, reshards, faults, times, st.just(Trim()))
meanwhile = st.one_of(
    actions,
    actions,
    actions,
    st.just(Pause()),
    st.just(Crash()),
)
crashes = st.builds(CrashAt, st.sampled_from(POINTS), st.integers(1, 3))
# A task is attempted four times before the epoch is planned again.
failing = st.one_of(
    st.frozensets(st.integers(1, 6), max_size=2),
    st.integers(1, 3).map(lambda first: frozenset(range(first, first + 4))),
)
runs = st.builds(
    Run,
    meanwhile=st.lists(st.builds(At, REQUESTS, meanwhile), max_size=3).map(tuple),
    idle=st.just(()) | st.lists(actions, min_size=1, max_size=3).map(tuple),
    crash=st.none() | st.none() | crashes,
    failing_attempts=st.just(frozenset[int]()) | failing,
    commits=st.just(()) | st.lists(st.sampled_from(Fault), max_size=3).map(tuple),
)
scenes = st.one_of(
    st.tuples(puts, runs),
    st.tuples(puts, reshards, puts, runs),
    st.tuples(reshards, runs),
    st.tuples(faults, puts, runs),
    st.tuples(actions, actions),
    st.tuples(puts, reshards, puts, reshards, puts),
    st.tuples(runs, st.just(Trim()), runs),
).map(list[Step])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return any history; in most histories the stream has records before the load."""
    setup = draw(setups)
    before = draw(st.lists(puts | puts | reshards, max_size=4))
    following = draw(st.lists(scenes, min_size=1, max_size=SCENES_MAX))
    steps = list(chain.from_iterable(following))
    if draw(st.sampled_from([False, False, False, True])):
        steps.insert(draw(st.integers(0, len(steps))), NEARLY_A_DAY)
    return History(setup=setup, before=tuple(before), steps=tuple(steps))
