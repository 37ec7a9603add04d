"""Versions of the source that are known to be wrong, each with a history that shows it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.crashpoints import CrashPoint
from penstock.model.split import (
    After,
    AtTime,
    End,
    Horizon,
    Position,
    Progress,
    SplitProgress,
    SplitRead,
)
from penstock.sources.kinesis import polling, reading, records, shards, source
from penstock.sources.kinesis.polling import PollState, ShardDirectory, ShardPoller
from penstock.sources.kinesis.reader import KinesisReader
from penstock.sources.kinesis.reading import Page, ShardPages, ShardReading
from penstock.sources.kinesis.records import Item
from penstock.sources.kinesis.shards import ShardMemory
from penstock.sources.kinesis.source import KinesisSource
from penstock.testing.memory_tables import Fault
from tests.property.streams.steps import (
    At,
    CrashAt,
    Expire,
    Gaps,
    Garble,
    History,
    Merge,
    Put,
    PutTogether,
    Run,
    Setup,
    Split,
    Stale,
    Wait,
)
from tests.servers.kinesis.stream import StaleListing

Mutation = Callable[[pytest.MonkeyPatch], None]


def the_position_moves_when_a_page_is_fetched(patch: pytest.MonkeyPatch) -> None:
    """What a page holds counts as taken, even if the epoch was full before its last record."""
    items = ShardReading._items_of

    def mutant(self: ShardReading, page: Page) -> Iterator[Item]:
        yield from items(self, page)
        if page.records:
            behind = After(value=page.records[-1].sequence)
            self.outcome = replace(self.outcome, position=behind)

    patch.setattr(ShardReading, "_items_of", mutant)


def a_page_counts_as_taken_whole(patch: pytest.MonkeyPatch) -> None:
    """Lag, iterator and end of a page are believed although some of it was not taken."""
    patch.setattr(ShardReading, "_taken_whole", lambda *_: True)


def children_are_not_held_back(patch: pytest.MonkeyPatch) -> None:
    """Every shard that is not finished is read."""

    def mutant(progress: Progress) -> Progress:
        return tuple(split for split in progress if not isinstance(split.position, End))

    patch.setattr(source, "readable", mutant)


def finished_shards_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A listed shard that is not being read is a new one."""

    def follow(progress: Progress, listed: Sequence[Any]) -> Progress:
        known = {split.split for split in progress}
        new = [shards.split_of(s, Horizon()) for s in listed if s.id not in known]
        return (*shards.follow(progress, ()), *new)

    completed = ShardDirectory.completed

    def mutant(self: ShardDirectory, progress: Progress) -> Progress:
        found = completed(self, progress)
        return tuple(split for split in found if not isinstance(split.position, End))

    for module in (polling, source):
        patch.setattr(module, "follow", follow)
    patch.setattr(ShardDirectory, "completed", mutant)


def a_failed_try_leaves_its_iterator(patch: pytest.MonkeyPatch) -> None:
    """The next read of a shard continues where the last one stopped, whatever became of it."""
    left: dict[str, ShardPages] = {}
    open_reading = KinesisReader._reading

    def mutant(self: KinesisReader, read: SplitRead) -> ShardReading:
        opened = open_reading(self, read)
        if read.split in left and left[read.split].iterator:
            opened._pages.iterator = left[read.split].iterator
        left[read.split] = opened._pages
        return opened

    patch.setattr(KinesisReader, "_reading", mutant)


def what_was_read_counts_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The driver continues after what tasks have read, also if the commit fails."""
    advance = KinesisSource.advance

    def mutant(self: KinesisSource, plan: Any, notes: Any) -> Progress:
        read = advance(self, plan, notes)
        self.committed(read, notes)
        self._directory.read = read  # type: ignore[attr-defined]
        return read

    def completed(self: ShardDirectory, progress: Progress) -> Progress:
        return whole(self, vars(self).get("read", progress))

    whole = ShardDirectory.completed
    patch.setattr(KinesisSource, "advance", mutant)
    patch.setattr(ShardDirectory, "completed", completed)
    patch.setattr(KinesisSource, "committed", _once(KinesisSource.committed))


def _once(committed: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """Follow the same notes once."""

    def mutant(self: KinesisSource, progress: Progress, notes: Any) -> None:
        if vars(self).get("_followed") is not notes:
            self._followed = notes  # type: ignore[attr-defined]
            committed(self, progress, [n for n in notes if n.read in self._pollers])

    return mutant


def a_missing_iterator_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """No proof is asked for."""

    def mutant(self: ShardPages, data: dict[str, Any]) -> bool:
        del self
        data.setdefault("Records", [])
        return True

    patch.setattr(ShardPages, "_is_whole", mutant)


def an_answer_without_lag_may_be_the_end(patch: pytest.MonkeyPatch) -> None:
    """Any answer with records and without an iterator ends a shard that is closed."""

    def mutant(self: ShardPages, data: Mapping[str, Any]) -> bool:
        if "Records" not in data:
            return False
        return bool(data.get("NextShardIterator") or data.get("ChildShards")) or (
            self.is_closed()
        )

    patch.setattr(ShardPages, "_is_whole", mutant)


def an_answer_without_lag_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """An answer with records and an iterator is a page, and not behind if it tells no lag."""
    whole = ShardPages._is_whole

    def mutant(self: ShardPages, data: Mapping[str, Any]) -> bool:
        return whole(self, data) or bool("Records" in data and data.get("NextShardIterator"))

    patch.setattr(ShardPages, "_is_whole", mutant)


def an_empty_page_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """A closed shard ends with the first page that holds nothing."""
    page = ShardPages._page

    def mutant(self: ShardPages, answer: Any) -> Page:
        found = page(self, answer)
        return replace(found, ended=found.ended or not found.records)

    patch.setattr(ShardPages, "_page", mutant)


def an_empty_page_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """Whoever meets an empty page is caught up."""
    page = ShardPages._page

    def mutant(self: ShardPages, answer: Any) -> Page:
        found = page(self, answer)
        return found if found.records else replace(found, lag=timedelta(0))

    patch.setattr(ShardPages, "_page", mutant)


def an_end_without_rows_is_nothing_new(patch: pytest.MonkeyPatch) -> None:
    """Only records make an epoch."""
    ask, next_page = ShardPoller.ask, ShardPages.next
    last: dict[int, Page] = {}

    def remembering(self: ShardPages, *, limit: int) -> Page:
        page = next_page(self, limit=limit)
        last[id(self)] = page
        return page

    def mutant(self: ShardPoller, retention: timedelta) -> None:
        asked = self.pages
        ask(self, retention)
        if self.state is PollState.FOUND and not last[id(asked)].records:
            self.state = PollState.IDLE

    patch.setattr(ShardPages, "next", remembering)
    patch.setattr(ShardPoller, "ask", mutant)


def only_the_first_page_of_a_listing_is_read(patch: pytest.MonkeyPatch) -> None:
    """Shards of later pages do not exist."""

    def mutant(client: Any) -> Any:
        page = client.access.page_shards_max
        response = client.send("list_shards", MaxResults=page, **client.access.naming)
        return tuple(reading._shards(response))

    patch.setattr(reading, "_all_pages", mutant)


def a_shard_that_is_not_listed_is_gone(patch: pytest.MonkeyPatch) -> None:
    """What a listing lacks is dropped."""
    completed = ShardDirectory.completed

    def mutant(self: ShardDirectory, progress: Progress) -> Progress:
        listed = {shard.id for shard in self.listed}
        return completed(self, tuple(split for split in progress if split.split in listed))

    patch.setattr(ShardDirectory, "completed", mutant)


def parts_of_a_record_are_taken_again(patch: pytest.MonkeyPatch) -> None:
    """Behind a part of a record means before all of it."""
    patch.setattr(records, "_taken_of", lambda *_: None)


def the_rest_of_a_record_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """Behind a part of a record means behind all of it."""
    iterator_of = reading.iterator_of

    def mutant(position: Position) -> dict[str, Any]:
        if isinstance(position, After):
            return iterator_of(After(value=position.value))
        return iterator_of(position)

    patch.setattr(reading, "iterator_of", mutant)


def new_shards_begin_at_the_tip(patch: pytest.MonkeyPatch) -> None:
    """Children begin at the moment at which they are found."""
    completed = ShardDirectory.completed

    def mutant(self: ShardDirectory, progress: Progress) -> Progress:
        known = {split.split for split in progress}
        return tuple(
            split
            if split.split in known or not isinstance(split.position, Horizon)
            else replace(split, position=AtTime(at=self._clock.now()))
            for split in completed(self, progress)
        )

    patch.setattr(ShardDirectory, "completed", mutant)


def an_expired_iterator_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """Reading goes on where it began, and not behind the last record."""
    page = ShardPages._page

    def mutant(self: ShardPages, answer: Any) -> Page:
        begun = self.position
        found = page(self, answer)
        self.position = begun
        return found

    patch.setattr(ShardPages, "_page", mutant)


def the_record_that_proves_is_loaded_again(patch: pytest.MonkeyPatch) -> None:
    """The iterator that was made to see a record once more goes to the task."""
    ask = ShardPoller.ask

    def mutant(self: ShardPoller, retention: timedelta) -> None:
        check, iterator = self.gap_check, self.pages.opened()
        ask(self, retention)
        if check and not self.gap_check:
            self.state, self.pages.iterator = PollState.FOUND, iterator

    patch.setattr(ShardPoller, "ask", mutant)


def the_plan_says_where_tasks_end(patch: pytest.MonkeyPatch) -> None:
    """Notes are not looked at."""
    patch.setattr(KinesisSource, "advance", lambda _self, plan, _notes: plan.progress)


def finished_shards_keep_their_lag(patch: pytest.MonkeyPatch) -> None:
    """The lag of a shard stays when the shard has ended."""

    def mutant(self: KinesisSource, split: SplitProgress) -> ShardMemory | None:
        memory = self._memory.get(split.split)
        return None if memory is None else replace(memory, placed=split.placed)

    patch.setattr(KinesisSource, "_stored_memory", mutant)


def a_record_of_the_first_second_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """Whatever arrived in the second in which a run begins arrived after its begin."""
    patch.setattr(source, "_SERVER_TICK", timedelta(0))


def a_listing_is_never_late(patch: pytest.MonkeyPatch) -> None:
    """A shard that a listing lacks is read without knowing its keys."""
    patch.setattr(polling, "_LATE_LISTINGS_MAX", 0)


def a_name_is_all_that_is_needed(patch: pytest.MonkeyPatch) -> None:
    """A shard of which nothing but its name is known is read at once."""
    a_listing_is_never_late(patch)
    patch.setattr(shards, "unlisted_yet", lambda _progress: ())


ONE = Setup(rows_max=1)
TWO = Setup(rows_max=2)
# A run asks for stream, shards, iterator and one record; then its first task asks.
FIRST_OF_TASK = 5

HISTORY_BY_MUTATION: Mapping[Mutation, History] = {
    the_position_moves_when_a_page_is_fetched: History(
        setup=TWO, steps=(PutTogether("aaaaa"),)
    ),
    a_page_counts_as_taken_whole: History(setup=TWO, steps=(PutTogether("aaaaa"), Put("a"))),
    children_are_not_held_back: History(setup=ONE, steps=(Put("aaa"), Split(0), Put("aa"))),
    finished_shards_are_forgotten: History(
        setup=ONE, steps=(Put("a"), Split(0), Put("a"), Run())
    ),
    a_failed_try_leaves_its_iterator: History(
        setup=ONE, steps=(Put("aaa"), Run(failing_tries=frozenset({1})))
    ),
    what_was_read_counts_before_it_is_committed: History(
        setup=ONE, steps=(Put("aaa"), Run(commits=(Fault.LATE,)))
    ),
    a_missing_iterator_is_the_end: History(
        setup=TWO, steps=(Put("aaa"), Run(meanwhile=(At(FIRST_OF_TASK, Garble("{}")),)))
    ),
    an_answer_without_lag_may_be_the_end: History(
        setup=TWO,
        steps=(
            Put("aaa"),
            Split(0),
            Run(meanwhile=(At(FIRST_OF_TASK, Garble('{"Records": []}')),)),
        ),
    ),
    an_answer_without_lag_is_the_tip: History(
        setup=TWO,
        steps=(
            Put("aaa"),
            Run(
                idle=(Put("a"),),
                meanwhile=(
                    At(FIRST_OF_TASK, Garble('{"Records": [], "NextShardIterator": "x"}')),
                ),
            ),
        ),
    ),
    an_empty_page_is_the_end: History(setup=TWO, steps=(Put("aaa"), Gaps(1, 0))),
    an_empty_page_is_the_tip: History(setup=TWO, steps=(Put("aaa"), Gaps(1, 0))),
    an_end_without_rows_is_nothing_new: History(setup=TWO, steps=(Split(0), Put("a"))),
    only_the_first_page_of_a_listing_is_read: History(
        setup=Setup(shards=2, page_shards_max=1), steps=(Put("ae"),)
    ),
    a_shard_that_is_not_listed_is_gone: History(
        setup=ONE,
        steps=(
            Stale(3, StaleListing.CHILDREN_MISSING),
            Split(0),
            Put("aaa"),
            Run(idle=(Put("a"),)),
        ),
    ),
    parts_of_a_record_are_taken_again: History(setup=TWO, steps=(PutTogether("aaaaa"),)),
    the_rest_of_a_record_is_left_out: History(setup=TWO, steps=(PutTogether("aaaaa"),)),
    new_shards_begin_at_the_tip: History(setup=TWO, steps=(Split(0), Put("a"), Wait(5))),
    an_expired_iterator_begins_anew: History(
        setup=Setup(rows_max=5, page_records_max=1),
        steps=(Put("aaa"), Run(meanwhile=(At(FIRST_OF_TASK + 2, Expire()),))),
    ),
    the_record_that_proves_is_loaded_again: History(
        setup=TWO, steps=(Put("a"), Run(), Put("a"))
    ),
    the_plan_says_where_tasks_end: History(setup=TWO, steps=(Put("a"), Run())),
    finished_shards_keep_their_lag: History(
        setup=TWO, steps=(Split(0), Run(crash=CrashAt(CrashPoint.TABLE_COMMITTED)))
    ),
    a_listing_is_never_late: History(
        setup=TWO,
        steps=(
            Stale(2, StaleListing.CHILDREN_MISSING),
            Split(0),
            PutTogether("a", stranger=True),
            Run(crash=CrashAt(CrashPoint.COPY_WRITTEN)),
            Run(),
        ),
    ),
    a_name_is_all_that_is_needed: History(
        setup=Setup(page_records_max=1),
        before=(Split(0), Split(0)),
        steps=(Put("a"), Run(meanwhile=(At(3, Split(1)), At(3, Merge(2))))),
    ),
    a_record_of_the_first_second_is_the_tip: History(setup=ONE, steps=(Put("aa"),)),
}
