"""Shards are followed from parents to children, each once, whatever the listings show."""

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
    childless,
    follow,
    forgettable,
    readable,
    split_of,
    unfinished_descendants,
    unknown_parents,
    unlisted,
    unlisted_yet,
)
from penstock.sources.source import ShowRequest
from tests.contract.catalog.building import BEGINNING
from tests.error_values import assert_names, raises
from tests.unit.supervisor.test_restart import CREATED


def name(number: int) -> str:
    return f"shardId-{number:012d}"


def shard(number: int, *parents: int, closed: bool = False) -> ListedShard:
    names = tuple(name(parent) for parent in parents)
    return ListedShard(id=name(number), begins=f"{number}00", parents=names, closed=closed)


def at(progress: Progress, number: int, position: Position) -> Progress:
    return tuple(
        replace(split, position=position) if split.split == name(number) else split
        for split in progress
    )


def names(splits: Progress) -> list[str]:
    return [split.split for split in splits]


def begin(listed: list[ListedShard], position: Position) -> Progress:
    """Return the progress of a new job."""
    by_id = sorted(listed, key=lambda shard: shard.id)
    return tuple(split_of(shard, position) for shard in by_id)


def forget(progress: Progress, gone: Collection[str]) -> Progress:
    return tuple(split for split in progress if split.split not in gone)


def forgotten(progress: Progress, listed: list[ListedShard]) -> Progress:
    """Forget what a stream does not know any more that knows only what it lists."""
    return forget(progress, forgettable(progress, listed))


def test_a_new_job_follows_every_listed_shard_from_where_it_was_told() -> None:
    position = After(value="7")

    progress = begin([shard(1, 0), shard(0, closed=True)], position)

    assert names(progress) == [name(0), name(1)]
    assert {split.position for split in progress} == {position}


def test_t29_a_child_waits_until_all_its_parents_are_finished() -> None:
    progress = begin([shard(0), shard(1)], Horizon())
    progress = follow(progress, [shard(2, 0, 1)])

    one = at(progress, 0, End())
    both = at(one, 1, End())

    assert names(readable(progress)) == [name(0), name(1)]
    assert names(readable(one)) == [name(1)]
    assert names(readable(both)) == [name(2)]


def test_t31_a_child_of_a_job_that_began_at_a_time_begins_at_the_horizon() -> None:
    began = AtTime(at=datetime(2026, 11, 15, tzinfo=UTC))
    progress = begin([shard(0)], began)

    progress = follow(progress, [shard(0, closed=True), shard(1, 0)])

    assert [split.position for split in progress] == [began, Horizon()]


def test_t23_a_finished_shard_that_is_listed_again_stays_finished() -> None:
    progress = at(begin([shard(0)], Horizon()), 0, End())

    progress = follow(progress, [shard(0, closed=True), shard(1, 0)])

    assert names(readable(progress)) == [name(1)]


def test_t23_a_forgotten_parent_that_is_listed_again_is_not_read_again() -> None:
    progress = follow(begin([shard(0)], Horizon()), [shard(1, 0)])
    progress = at(at(progress, 0, End()), 1, After(value="1"))
    progress = forgotten(at(progress, 1, End()), [shard(1)])
    progress = forgotten(follow(progress, [shard(2, 1)]), [shard(2, 1)])

    again = follow(progress, [shard(0, closed=True), shard(1, 0, closed=True), shard(2, 1)])

    assert name(0) not in names(progress)
    assert name(0) not in names(again)
    assert names(readable(again)) == [name(2)]


def test_t70_a_shard_that_begins_elsewhere_is_of_another_stream() -> None:
    progress = begin([shard(0)], Horizon())

    with raises(UserError, Code.STREAM_CHANGED_ERR, "900", "000") as refused:
        follow(progress, [ListedShard(id=name(0), begins="900")])

    assert refused.value.code is Code.STREAM_CHANGED_ERR
    assert_names(refused.value.hint, "property.kinesis_default_pos", "TRIM_HORIZON")


def test_t72_a_shard_known_by_its_parents_end_is_completed_by_a_listing() -> None:
    progress = follow(
        begin([shard(0)], Horizon()), [ListedShard(id=name(1), parents=(name(0),))]
    )

    progress = follow(progress, [shard(1, 0)])

    (child,) = (split for split in progress if split.split == name(1))
    assert (child.identity, child.parents) == ("100", (name(0),))


def test_t72_no_shard_is_dropped_because_a_listing_lacks_it() -> None:
    progress = begin([shard(0), shard(1)], Horizon())

    assert names(follow(progress, [shard(1)])) == [name(0), name(1)]
    assert names(forgotten(progress, [shard(1)])) == [name(0), name(1)]


def test_t72_a_child_that_a_listing_shows_later_than_its_sister_is_followed_too() -> None:
    progress = follow(begin([shard(0)], Horizon()), [shard(2, 0)])

    assert names(follow(progress, [shard(1, 0), shard(2, 0)])) == [name(0), name(2), name(1)]


def test_t71_an_unfinished_shard_that_is_not_listed_is_to_be_asked_for() -> None:
    progress = begin([shard(0), shard(1)], Horizon())

    assert names(unlisted(progress, [shard(1)])) == [name(0)]
    assert names(unlisted(at(progress, 0, End()), [shard(1)])) == []


def test_t71_a_parent_that_nobody_knows_is_to_be_asked_for_and_does_not_hold_its_child() -> (
    None
):
    progress = begin([shard(2, 0, 1)], Horizon())

    assert unknown_parents(progress) == (name(0), name(1))
    assert names(readable(progress)) == [name(2)]


def test_a_finished_shard_is_remembered_until_its_children_are_known() -> None:
    progress = at(begin([shard(0)], Horizon()), 0, End())

    kept = forgotten(progress, [])
    followed = follow(kept, [shard(1, 0)])
    waiting = forgotten(followed, [shard(1, 0)])
    done = forgotten(at(followed, 1, End()), [shard(1, 0)])

    assert names(kept) == [name(0)]
    assert names(waiting) == [name(0), name(1)]
    assert names(done) == [name(1)]


def test_a_shard_that_is_known_by_name_waits_until_a_listing_tells_its_parents() -> None:
    progress = (*begin([shard(0)], Horizon()), split_of(ListedShard(id=name(1)), Horizon()))

    told = follow(progress, [shard(0), shard(1, 0)])

    assert names(readable(progress)) == [name(0)]
    assert names(unlisted_yet(progress)) == [name(1)]
    assert names(readable(told)) == [name(0)]
    assert names(readable(at(told, 0, End()))) == [name(1)]
    assert unlisted_yet(told) == ()


def test_a_closed_shard_has_children_as_long_as_it_is_listed() -> None:
    progress = at(begin([shard(0)], Horizon()), 0, End())
    closed = shard(0, closed=True)

    assert names(childless(progress, [closed])) == [name(0)]
    assert childless(progress, [shard(0)]) == ()
    assert childless(progress, []) == ()
    assert childless(follow(progress, [shard(1, 0)]), [closed]) == ()
    assert childless(begin([closed], Horizon()), [closed]) == ()


def test_the_states_of_shards() -> None:
    listed = [shard(0, closed=True), shard(1, 0, closed=True), shard(2, 1), shard(3)]
    progress = at(begin(listed, Horizon()), 0, End())
    memory = StreamMemory(closed=tuple(shard.id for shard in listed if shard.closed))
    request = ShowRequest(
        state=replace(CREATED, progress=progress), memory=to_text(memory), at=BEGINNING
    )

    assert {one.split: one.state for one in KINESIS.statuses(request)} == {
        name(0): SplitState.FINISHED,
        name(1): SplitState.DRAINING,
        name(2): SplitState.WAITING,
        name(3): SplitState.OPEN,
    }


@dataclass
class Stream:
    """A stream that is split and merged, forgets closed shards, and lists what it likes."""

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
        """Answer what the end of a shard names: no more than names and parents."""
        found = [one for one in self.shards if parent in one.parents]
        return [ListedShard(id=one.id, parents=one.parents) for one in found]


@dataclass
class Reader:
    """A job that reads shards to their ends."""

    stream: Stream
    progress: Progress = ()
    finished: list[str] = field(default_factory=list)

    def look(self, listed: list[ListedShard]) -> None:
        self.progress = follow(self.progress, listed)
        self.ask()
        missing = forgettable(self.progress, listed)
        self.progress = forget(self.progress, self.stream.trimmed.intersection(missing))

    def ask(self) -> None:
        """Ask for the parents that nobody has told of, as a job does before it reads."""
        for parent in unknown_parents(self.progress):
            if parent not in self.stream.trimmed:
                self.progress += (split_of(ListedShard(id=parent), Horizon()),)

    def read(self, choice: int) -> None:
        self.ask()
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
        self.progress = follow(self.progress, self.stream.children(split.split))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["split", "merge", "trim", "look", "look late", "look at some", "read"]
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
        ("look at some", 0),
    ]
)
@given(steps=STEPS)
def test_every_shard_is_read_once_and_behind_its_parents(
    steps: list[tuple[str, int]],
) -> None:
    stream = Stream()
    reader = Reader(stream, progress=begin(stream.listing(), Horizon()))
    past = [stream.listing()]
    for step, number in steps:
        take(step, number, stream=stream, reader=reader, past=past)
        past.append(stream.listing())
    for _ in stream.shards:
        reader.look(stream.listing())
        reader.read(0)

    closed = {one.id for one in stream.shards if one.closed}
    assert set(reader.finished) == closed
    assert set(names(readable(reader.progress))) == {
        one.id for one in stream.shards if not one.closed
    }


def take(
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
            # What was read may be forgotten by the stream, the oldest first.
            stream.trimmed.add(min({*reader.finished} - stream.trimmed, default=name(0)))
        case "look":
            reader.look(stream.listing())
        case "look late":
            reader.look(past[-1 - number % min(3, len(past))])
        case "look at some":
            reader.look([one for one in stream.listing() if number >> int(one.id[-2:]) & 1])
        case "read":
            reader.read(number)
        case _:
            pass


def test_a_shard_that_was_split_and_merged_over_and_over_is_continued_by_the_last_one() -> None:
    # Twice as many paths with every round: nobody could walk them all.
    rounds = 60
    shards = [shard(0)]
    for at_ in range(0, 3 * rounds, 3):
        shards += [shard(at_ + 1, at_), shard(at_ + 2, at_), shard(at_ + 3, at_ + 1, at_ + 2)]
    last = name(3 * rounds)
    progress = at(begin(shards, End()), 3 * rounds, Horizon())

    assert unfinished_descendants(progress, name(0)) == (last,)
    assert unfinished_descendants(progress, last) == (last,)
    assert unfinished_descendants(begin(shards, End()), name(0)) == ()
