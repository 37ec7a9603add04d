"""Every shard is read once and after its parents, in spite of wrong listings."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from penstock.model.split import (
    After,
    AtTime,
    End,
    Horizon,
    Position,
    Progress,
    SplitProgress,
    SplitState,
)
from penstock.sources.kinesis.kind import KINESIS
from penstock.sources.kinesis.shards import (
    ListedShard,
    StreamMemory,
    add_new_shards,
    childless,
    known_by_name_only,
    readable,
    removable,
    split_of,
    unfinished_descendants,
    unknown_parents,
    unlisted,
)
from penstock.sources.source import ShowRequest
from tests.contract.catalog.building import START
from tests.error_values import assert_names, raises
from tests.unit.supervisor.test_restart import CREATED


def name(number: int) -> str:
    return f"shardId-{number:012d}"


def shard(number: int, *parents: int, closed: bool = False) -> ListedShard:
    names = tuple(name(parent) for parent in parents)
    return ListedShard(
        id=name(number), first_sequence=f"{number}00", parents=names, closed=closed
    )


def at(progress: Progress, number: int, position: Position) -> Progress:
    return tuple(
        replace(split, position=position) if split.split == name(number) else split
        for split in progress
    )


def names(splits: Progress) -> list[str]:
    return [split.split for split in splits]


def start_job(listed: list[ListedShard], position: Position) -> Progress:
    """Return the progress of a new job."""
    by_id = sorted(listed, key=lambda shard: shard.id)
    return tuple(split_of(shard, position) for shard in by_id)


def without(progress: Progress, gone: Collection[str]) -> Progress:
    return tuple(split for split in progress if split.split not in gone)


def pruned(progress: Progress, listed: list[ListedShard]) -> Progress:
    """Remove finished shards, as if the stream had only the listed shards."""
    return without(progress, removable(progress, listed))


def test_a_new_job_reads_every_listed_shard_from_its_start_position() -> None:
    position = After(value="7")

    progress = start_job([shard(1, 0), shard(0, closed=True)], position)

    assert names(progress) == [name(0), name(1)]
    assert {split.position for split in progress} == {position}


def test_t29_a_child_waits_until_all_its_parents_are_finished() -> None:
    progress = start_job([shard(0), shard(1)], Horizon())
    progress = add_new_shards(progress, [shard(2, 0, 1)])

    one = at(progress, 0, End())
    both = at(one, 1, End())

    assert names(readable(progress)) == [name(0), name(1)]
    assert names(readable(one)) == [name(1)]
    assert names(readable(both)) == [name(2)]


def test_t31_a_child_starts_at_the_horizon_even_if_its_job_started_at_a_time() -> None:
    start = AtTime(at=datetime(2026, 11, 15, tzinfo=UTC))
    progress = start_job([shard(0)], start)

    progress = add_new_shards(progress, [shard(0, closed=True), shard(1, 0)])

    assert [split.position for split in progress] == [start, Horizon()]


def test_t23_a_finished_shard_that_is_listed_again_stays_finished() -> None:
    progress = at(start_job([shard(0)], Horizon()), 0, End())

    progress = add_new_shards(progress, [shard(0, closed=True), shard(1, 0)])

    assert names(readable(progress)) == [name(1)]


def test_t23_a_removed_parent_that_is_listed_again_is_not_read_again() -> None:
    progress = add_new_shards(start_job([shard(0)], Horizon()), [shard(1, 0)])
    progress = at(at(progress, 0, End()), 1, After(value="1"))
    progress = pruned(at(progress, 1, End()), [shard(1)])
    progress = pruned(add_new_shards(progress, [shard(2, 1)]), [shard(2, 1)])

    again = add_new_shards(
        progress, [shard(0, closed=True), shard(1, 0, closed=True), shard(2, 1)]
    )

    assert name(0) not in names(progress)
    assert name(0) not in names(again)
    assert names(readable(again)) == [name(2)]


def test_t70_a_shard_with_another_first_number_belongs_to_another_stream() -> None:
    progress = start_job([shard(0)], Horizon())

    with raises(UserError, Code.STREAM_CHANGED_ERR, "900", "000") as error:
        add_new_shards(progress, [ListedShard(id=name(0), first_sequence="900")])

    assert error.value.code is Code.STREAM_CHANGED_ERR
    assert_names(error.value.hint, "property.kinesis_default_pos", "TRIM_HORIZON")


def test_t72_a_listing_adds_the_sequence_number_of_a_child_that_its_parent_named() -> None:
    progress = add_new_shards(
        start_job([shard(0)], Horizon()), [ListedShard(id=name(1), parents=(name(0),))]
    )

    progress = add_new_shards(progress, [shard(1, 0)])

    (child,) = (split for split in progress if split.split == name(1))
    assert (child.identity, child.parents) == ("100", (name(0),))


def test_t72_an_unfinished_shard_stays_if_a_listing_lacks_it() -> None:
    progress = start_job([shard(0), shard(1)], Horizon())

    assert names(add_new_shards(progress, [shard(1)])) == [name(0), name(1)]
    assert names(pruned(progress, [shard(1)])) == [name(0), name(1)]


def test_t72_a_child_that_is_listed_after_its_sibling_is_added() -> None:
    progress = add_new_shards(start_job([shard(0)], Horizon()), [shard(2, 0)])

    assert names(add_new_shards(progress, [shard(1, 0), shard(2, 0)])) == [
        name(0),
        name(2),
        name(1),
    ]


def test_t71_an_unfinished_shard_that_is_not_listed_needs_a_request_by_name() -> None:
    progress = start_job([shard(0), shard(1)], Horizon())

    assert names(unlisted(progress, [shard(1)])) == [name(0)]
    assert names(unlisted(at(progress, 0, End()), [shard(1)])) == []


def test_t71_an_unknown_parent_needs_a_request_by_name_and_does_not_block_its_child() -> None:
    progress = start_job([shard(2, 0, 1)], Horizon())

    assert unknown_parents(progress) == (name(0), name(1))
    assert names(readable(progress)) == [name(2)]


def test_a_finished_shard_stays_in_progress_until_its_children_are_finished() -> None:
    progress = at(start_job([shard(0)], Horizon()), 0, End())

    kept = pruned(progress, [])
    extended = add_new_shards(kept, [shard(1, 0)])
    waiting = pruned(extended, [shard(1, 0)])
    done = pruned(at(extended, 1, End()), [shard(1, 0)])

    assert names(kept) == [name(0)]
    assert names(waiting) == [name(0), name(1)]
    assert names(done) == [name(1)]


def test_a_shard_known_only_by_name_waits_until_a_listing_shows_its_parents() -> None:
    progress = (*start_job([shard(0)], Horizon()), split_of(ListedShard(id=name(1)), Horizon()))

    listed = add_new_shards(progress, [shard(0), shard(1, 0)])

    assert names(readable(progress)) == [name(0)]
    assert names(known_by_name_only(progress)) == [name(1)]
    assert names(readable(listed)) == [name(0)]
    assert names(readable(at(listed, 0, End()))) == [name(1)]
    assert known_by_name_only(listed) == ()


def test_a_listed_closed_shard_without_a_child_is_reported_as_childless() -> None:
    progress = at(start_job([shard(0)], Horizon()), 0, End())
    closed = shard(0, closed=True)

    assert names(childless(progress, [closed])) == [name(0)]
    assert childless(progress, [shard(0)]) == ()
    assert childless(progress, []) == ()
    assert childless(add_new_shards(progress, [shard(1, 0)]), [closed]) == ()
    assert childless(start_job([closed], Horizon()), [closed]) == ()


def test_shards_are_finished_draining_waiting_or_open() -> None:
    listed = [shard(0, closed=True), shard(1, 0, closed=True), shard(2, 1), shard(3)]
    progress = at(start_job(listed, Horizon()), 0, End())
    memory = StreamMemory(closed=tuple(shard.id for shard in listed if shard.closed))
    request = ShowRequest(
        state=replace(CREATED, progress=progress), memory=to_text(memory), at=START
    )

    assert {one.split: one.state for one in KINESIS.statuses(request)} == {
        name(0): SplitState.FINISHED,
        name(1): SplitState.DRAINING,
        name(2): SplitState.WAITING,
        name(3): SplitState.OPEN,
    }


@dataclass
class Stream:
    """A stream that splits, merges and trims shards."""

    shards: list[ListedShard] = field(default_factory=lambda: [shard(0), shard(1)])
    trimmed: set[str] = field(default_factory=set)

    def open(self) -> list[int]:
        return [number for number, one in enumerate(self.shards) if not one.closed]

    def split(self, number: int) -> None:
        self._close(number)
        self.shards += [shard(len(self.shards) + extra, number) for extra in (0, 1)]

    def merge(self, one: int, other: int) -> None:
        self._close(one)
        self._close(other)
        self.shards.append(shard(len(self.shards), one, other))

    def _close(self, number: int) -> None:
        self.shards[number] = replace(self.shards[number], closed=True)

    def listing(self) -> list[ListedShard]:
        return [one for one in self.shards if one.id not in self.trimmed]

    def children(self, parent: str) -> list[ListedShard]:
        """Return the children that the last page of a shard names: only names and parents."""
        found = [one for one in self.shards if parent in one.parents]
        return [ListedShard(id=one.id, parents=one.parents) for one in found]


@dataclass
class Reader:
    """A job that reads closed shards to their end."""

    stream: Stream
    progress: Progress = ()
    finished: list[str] = field(default_factory=list)

    def poll(self, listed: list[ListedShard]) -> None:
        self.progress = add_new_shards(self.progress, listed)
        self.add_parents()
        missing = removable(self.progress, listed)
        self.progress = without(self.progress, self.stream.trimmed.intersection(missing))

    def add_parents(self) -> None:
        """Add the unlisted parents that exist, as a job does before it reads."""
        for parent in unknown_parents(self.progress):
            if parent not in self.stream.trimmed:
                self.progress += (split_of(ListedShard(id=parent), Horizon()),)

    def read(self, choice: int) -> None:
        self.add_parents()
        closed = {one.id for one in self.stream.shards if one.closed}
        able = [split for split in readable(self.progress) if split.split in closed]
        if able:
            self.finish(able[choice % len(able)])

    def finish(self, split: SplitProgress) -> None:
        number = int(split.split.removeprefix("shardId-"))
        (truth,) = (one for one in self.stream.shards if one.id == split.split)
        assert split.split not in self.finished
        assert all(parent in self.finished for parent in truth.parents)
        self.finished.append(split.split)
        self.progress = at(self.progress, number, End())
        self.progress = add_new_shards(self.progress, self.stream.children(split.split))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["split", "merge", "trim", "poll", "poll stale", "poll partly", "read"]
        ),
        st.integers(0, 2**16),
    ),
    max_size=60,
)


@settings(max_examples=300)
@example(
    steps=[
        *[("split", 0)] * 16,
        *[("read", 0)] * 3,
        ("read", 3),
        ("read", 225),
        ("poll partly", 0),
    ]
)
@given(steps=STEPS)
def test_every_shard_is_read_once_and_after_its_parents(
    steps: list[tuple[str, int]],
) -> None:
    stream = Stream()
    reader = Reader(stream, progress=start_job(stream.listing(), Horizon()))
    past = [stream.listing()]
    for step, number in steps:
        apply_step(step, number, stream=stream, reader=reader, past=past)
        past.append(stream.listing())
    for _ in stream.shards:
        reader.poll(stream.listing())
        reader.read(0)

    closed = {one.id for one in stream.shards if one.closed}
    assert set(reader.finished) == closed
    assert set(names(readable(reader.progress))) == {
        one.id for one in stream.shards if not one.closed
    }


def apply_step(
    step: str, number: int, *, stream: Stream, reader: Reader, past: list[list[ListedShard]]
) -> None:
    able = stream.open()
    match step:
        case "split":
            stream.split(able[number % len(able)])
        case "merge" if len(able) > 1:
            first = number % (len(able) - 1)
            stream.merge(able[first], able[first + 1])
        case "trim" if reader.finished:
            # The stream may delete finished shards, the oldest first.
            stream.trimmed.add(min({*reader.finished} - stream.trimmed, default=name(0)))
        case "poll":
            reader.poll(stream.listing())
        case "poll stale":
            reader.poll(past[-1 - number % min(3, len(past))])
        case "poll partly":
            reader.poll([one for one in stream.listing() if number >> int(one.id[-2:]) & 1])
        case "read":
            reader.read(number)
        case _:
            pass


def test_the_last_shard_continues_a_shard_that_was_split_and_merged_many_times() -> None:
    # Every round doubles the number of paths, so visiting all paths would never end.
    rounds = 60
    shards = [shard(0)]
    for at_ in range(0, 3 * rounds, 3):
        shards += [shard(at_ + 1, at_), shard(at_ + 2, at_), shard(at_ + 3, at_ + 1, at_ + 2)]
    last = name(3 * rounds)
    progress = at(start_job(shards, End()), 3 * rounds, Horizon())

    assert unfinished_descendants(progress, name(0)) == (last,)
    assert unfinished_descendants(progress, last) == (last,)
    assert unfinished_descendants(start_job(shards, End()), name(0)) == ()
