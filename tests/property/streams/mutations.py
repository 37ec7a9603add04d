"""Wrong versions of the source, each with a history that detects the error."""

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
    EmptyPages,
    Expire,
    History,
    MalformedResponse,
    Merge,
    Put,
    PutAggregate,
    Run,
    Setup,
    Split,
    Stale,
    Wait,
)
from tests.servers.kinesis.stream import StaleListing

Mutation = Callable[[pytest.MonkeyPatch], None]


def the_position_advances_when_a_page_is_fetched(patch: pytest.MonkeyPatch) -> None:
    """All records of a page count as read, even if the epoch was full before the last one."""
    items = ShardReading._items_of

    def mutant(self: ShardReading, page: Page) -> Iterator[Item]:
        yield from items(self, page)
        if page.records:
            position = After(value=page.records[-1].sequence)
            self.outcome = replace(self.outcome, position=position)

    patch.setattr(ShardReading, "_items_of", mutant)


def every_page_counts_as_read_completely(patch: pytest.MonkeyPatch) -> None:
    """Lag, iterator and end of a page are used although it was read only in part."""
    patch.setattr(ShardReading, "_has_read_all", lambda *_: True)


def children_do_not_wait_for_their_parents(patch: pytest.MonkeyPatch) -> None:
    """Every unfinished shard is read at once."""

    def mutant(progress: Progress) -> Progress:
        return tuple(split for split in progress if not isinstance(split.position, End))

    patch.setattr(source, "readable", mutant)


def finished_shards_are_removed_from_progress(patch: pytest.MonkeyPatch) -> None:
    """A listed shard that is not being read counts as new."""

    def add_new_shards(progress: Progress, listed: Sequence[Any]) -> Progress:
        known = {split.split for split in progress}
        new = [shards.split_of(s, Horizon()) for s in listed if s.id not in known]
        return (*shards.add_new_shards(progress, ()), *new)

    completed = ShardDirectory.completed

    def mutant(self: ShardDirectory, progress: Progress) -> Progress:
        found = completed(self, progress)
        return tuple(split for split in found if not isinstance(split.position, End))

    for module in (polling, source):
        patch.setattr(module, "add_new_shards", add_new_shards)
    patch.setattr(ShardDirectory, "completed", mutant)


def a_failed_attempt_leaves_its_iterator(patch: pytest.MonkeyPatch) -> None:
    """The next read of a shard continues after the last one, even if that one failed."""
    pages_by_shard: dict[str, ShardPages] = {}
    open_reading = KinesisReader._reading

    def mutant(self: KinesisReader, read: SplitRead) -> ShardReading:
        opened = open_reading(self, read)
        if read.split in pages_by_shard and pages_by_shard[read.split].iterator:
            opened._pages.iterator = pages_by_shard[read.split].iterator
        pages_by_shard[read.split] = opened._pages
        return opened

    patch.setattr(KinesisReader, "_reading", mutant)


def reads_count_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    """The driver continues after the records that tasks read, even if the commit fails."""
    advance = KinesisSource.advance

    def mutant(self: KinesisSource, plan: Any, notes: Any) -> Progress:
        read = advance(self, plan, notes)
        self.committed(read, notes)
        self._directory.read = read  # type: ignore[attr-defined]
        return read

    def completed(self: ShardDirectory, progress: Progress) -> Progress:
        return original(self, vars(self).get("read", progress))

    original = ShardDirectory.completed
    patch.setattr(KinesisSource, "advance", mutant)
    patch.setattr(ShardDirectory, "completed", completed)
    patch.setattr(KinesisSource, "committed", _once(KinesisSource.committed))


def _once(committed: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """Ignore a second call with the same notes."""

    def mutant(self: KinesisSource, progress: Progress, notes: Any) -> None:
        if vars(self).get("_followed") is not notes:
            self._followed = notes  # type: ignore[attr-defined]
            committed(self, progress, [n for n in notes if n.read in self._pollers])

    return mutant


def a_missing_iterator_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """A response without a next iterator always ends the shard."""

    def mutant(self: ShardPages, data: dict[str, Any]) -> bool:
        del self
        data.setdefault("Records", [])
        return True

    patch.setattr(ShardPages, "_is_complete", mutant)


def a_response_without_lag_can_be_the_end(patch: pytest.MonkeyPatch) -> None:
    """Any response with records and without an iterator ends a closed shard."""

    def mutant(self: ShardPages, data: Mapping[str, Any]) -> bool:
        if "Records" not in data:
            return False
        return bool(data.get("NextShardIterator") or data.get("ChildShards")) or (
            self.is_closed()
        )

    patch.setattr(ShardPages, "_is_complete", mutant)


def a_response_without_lag_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """A response with records and an iterator is a page with lag 0 if the lag is missing."""
    is_complete = ShardPages._is_complete

    def mutant(self: ShardPages, data: Mapping[str, Any]) -> bool:
        return is_complete(self, data) or bool(
            "Records" in data and data.get("NextShardIterator")
        )

    patch.setattr(ShardPages, "_is_complete", mutant)


def an_empty_page_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """A closed shard ends with the first empty page."""
    page = ShardPages._page

    def mutant(self: ShardPages, response: Any) -> Page:
        found = page(self, response)
        return replace(found, ended=found.ended or not found.records)

    patch.setattr(ShardPages, "_page", mutant)


def an_empty_page_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """A reader is caught up at the first empty page."""
    page = ShardPages._page

    def mutant(self: ShardPages, response: Any) -> Page:
        found = page(self, response)
        return found if found.records else replace(found, lag=timedelta(0))

    patch.setattr(ShardPages, "_page", mutant)


def an_end_without_rows_starts_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """Only records start an epoch."""
    poll, next_page = ShardPoller.poll, ShardPages.next
    last: dict[int, Page] = {}

    def recording(self: ShardPages, *, limit: int) -> Page:
        page = next_page(self, limit=limit)
        last[id(self)] = page
        return page

    def mutant(self: ShardPoller, retention: timedelta) -> None:
        polled = self.pages
        poll(self, retention)
        if self.state is PollState.FOUND and not last[id(polled)].records:
            self.state = PollState.IDLE

    patch.setattr(ShardPages, "next", recording)
    patch.setattr(ShardPoller, "poll", mutant)


def only_the_first_page_of_a_listing_is_read(patch: pytest.MonkeyPatch) -> None:
    """Shards of later pages are ignored."""

    def mutant(client: Any) -> Any:
        page = client.access.page_shards_max
        response = client.send("list_shards", MaxResults=page, **client.access.naming)
        return tuple(reading._shards(response))

    patch.setattr(reading, "_all_pages", mutant)


def a_shard_that_is_not_listed_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Shards that a listing lacks are removed from progress."""
    completed = ShardDirectory.completed

    def mutant(self: ShardDirectory, progress: Progress) -> Progress:
        listed = {shard.id for shard in self.listed}
        return completed(self, tuple(split for split in progress if split.split in listed))

    patch.setattr(ShardDirectory, "completed", mutant)


def parts_of_a_record_are_read_again(patch: pytest.MonkeyPatch) -> None:
    """A position inside a record counts as before the record."""
    patch.setattr(records, "_last_read_part", lambda *_: None)


def the_rest_of_a_record_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """A position inside a record counts as after the record."""
    iterator_arguments = reading.iterator_arguments

    def mutant(position: Position) -> dict[str, Any]:
        if isinstance(position, After):
            return iterator_arguments(After(value=position.value))
        return iterator_arguments(position)

    patch.setattr(reading, "iterator_arguments", mutant)


def new_shards_start_at_the_tip(patch: pytest.MonkeyPatch) -> None:
    """Children start at the time at which they are found."""
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


def an_expired_iterator_restarts_the_read(patch: pytest.MonkeyPatch) -> None:
    """Reading continues at the start of the read, and not after the last record."""
    page = ShardPages._page

    def mutant(self: ShardPages, response: Any) -> Page:
        start = self.position
        found = page(self, response)
        self.position = start
        return found

    patch.setattr(ShardPages, "_page", mutant)


def the_record_of_the_gap_check_is_loaded_again(patch: pytest.MonkeyPatch) -> None:
    """The iterator of the gap check is passed to the task."""
    poll = ShardPoller.poll

    def mutant(self: ShardPoller, retention: timedelta) -> None:
        check, iterator = self.gap_check, self.pages.current_iterator()
        poll(self, retention)
        if check and not self.gap_check:
            self.state, self.pages.iterator = PollState.FOUND, iterator

    patch.setattr(ShardPoller, "poll", mutant)


def the_plan_decides_where_tasks_end(patch: pytest.MonkeyPatch) -> None:
    """Notes of tasks are ignored."""
    patch.setattr(KinesisSource, "advance", lambda _self, plan, _notes: plan.progress)


def finished_shards_keep_their_lag(patch: pytest.MonkeyPatch) -> None:
    """The lag of a shard is kept after the shard is finished."""

    def mutant(self: KinesisSource, split: SplitProgress) -> ShardMemory | None:
        memory = self._memory.get(split.split)
        return None if memory is None else replace(memory, placed=split.placed)

    patch.setattr(KinesisSource, "_stored_memory", mutant)


def a_record_of_the_first_second_is_the_tip(patch: pytest.MonkeyPatch) -> None:
    """A record of the second in which a run starts counts as arrived after the start."""
    patch.setattr(source, "_SERVER_TICK", timedelta(0))


def listings_are_never_repeated(patch: pytest.MonkeyPatch) -> None:
    """A shard that a listing lacks is read without its range of hash keys."""
    patch.setattr(polling, "_RELISTINGS_MAX", 0)


def a_shard_known_only_by_name_is_read(patch: pytest.MonkeyPatch) -> None:
    """A shard is read at once, although its parents are unknown."""
    listings_are_never_repeated(patch)
    patch.setattr(shards, "known_by_name_only", lambda _progress: ())


ONE = Setup(rows_max=1)
TWO = Setup(rows_max=2)
# The driver sends four requests: stream, shards, iterator, one record. Then a task starts.
FIRST_TASK_REQUEST = 5

HISTORY_BY_MUTATION: Mapping[Mutation, History] = {
    the_position_advances_when_a_page_is_fetched: History(
        setup=TWO, steps=(PutAggregate("aaaaa"),)
    ),
    every_page_counts_as_read_completely: History(
        setup=TWO, steps=(PutAggregate("aaaaa"), Put("a"))
    ),
    children_do_not_wait_for_their_parents: History(
        setup=ONE, steps=(Put("aaa"), Split(0), Put("aa"))
    ),
    finished_shards_are_removed_from_progress: History(
        setup=ONE, steps=(Put("a"), Split(0), Put("a"), Run())
    ),
    a_failed_attempt_leaves_its_iterator: History(
        setup=ONE, steps=(Put("aaa"), Run(failing_attempts=frozenset({1})))
    ),
    reads_count_before_they_are_committed: History(
        setup=ONE, steps=(Put("aaa"), Run(commits=(Fault.LATE,)))
    ),
    a_missing_iterator_is_the_end: History(
        setup=TWO,
        steps=(Put("aaa"), Run(meanwhile=(At(FIRST_TASK_REQUEST, MalformedResponse("{}")),))),
    ),
    a_response_without_lag_can_be_the_end: History(
        setup=TWO,
        steps=(
            Put("aaa"),
            Split(0),
            Run(meanwhile=(At(FIRST_TASK_REQUEST, MalformedResponse('{"Records": []}')),)),
        ),
    ),
    a_response_without_lag_is_the_tip: History(
        setup=TWO,
        steps=(
            Put("aaa"),
            Run(
                idle=(Put("a"),),
                meanwhile=(
                    At(
                        FIRST_TASK_REQUEST,
                        MalformedResponse('{"Records": [], "NextShardIterator": "x"}'),
                    ),
                ),
            ),
        ),
    ),
    an_empty_page_is_the_end: History(setup=TWO, steps=(Put("aaa"), EmptyPages(1, 0))),
    an_empty_page_is_the_tip: History(setup=TWO, steps=(Put("aaa"), EmptyPages(1, 0))),
    an_end_without_rows_starts_no_epoch: History(setup=TWO, steps=(Split(0), Put("a"))),
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
    parts_of_a_record_are_read_again: History(setup=TWO, steps=(PutAggregate("aaaaa"),)),
    the_rest_of_a_record_is_skipped: History(setup=TWO, steps=(PutAggregate("aaaaa"),)),
    new_shards_start_at_the_tip: History(setup=TWO, steps=(Split(0), Put("a"), Wait(5))),
    an_expired_iterator_restarts_the_read: History(
        setup=Setup(rows_max=5, page_records_max=1),
        steps=(Put("aaa"), Run(meanwhile=(At(FIRST_TASK_REQUEST + 2, Expire()),))),
    ),
    the_record_of_the_gap_check_is_loaded_again: History(
        setup=TWO, steps=(Put("a"), Run(), Put("a"))
    ),
    the_plan_decides_where_tasks_end: History(setup=TWO, steps=(Put("a"), Run())),
    finished_shards_keep_their_lag: History(
        setup=TWO, steps=(Split(0), Run(crash=CrashAt(CrashPoint.TABLE_COMMITTED)))
    ),
    listings_are_never_repeated: History(
        setup=TWO,
        steps=(
            Stale(2, StaleListing.CHILDREN_MISSING),
            Split(0),
            PutAggregate("a", foreign=True),
            Run(crash=CrashAt(CrashPoint.COPY_WRITTEN)),
            Run(),
        ),
    ),
    a_shard_known_only_by_name_is_read: History(
        setup=Setup(page_records_max=1),
        before=(Split(0), Split(0)),
        steps=(Put("a"), Run(meanwhile=(At(3, Split(1)), At(3, Merge(2))))),
    ),
    a_record_of_the_first_second_is_the_tip: History(setup=ONE, steps=(Put("aa"),)),
}
