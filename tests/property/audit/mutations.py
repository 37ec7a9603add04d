"""Wrong versions of the source, each with a history that finds the bug."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from penstock.catalog import items as file_index
from penstock.catalog.items import JobFiles
from penstock.model.epoch import LoadedItem
from penstock.model.split import Horizon, Progress
from penstock.sources.files import source as files
from penstock.sources.files.globs import list_all
from penstock.sources.files.source import FilesSource, PollRange, next_range
from penstock.sources.source import Poll, ReportPoll
from tests.property.audit import named_histories as named
from tests.property.audit.steps import History

Mutation = Callable[[pytest.MonkeyPatch], None]


def a_failed_attempt_is_not_polled_again(patch: pytest.MonkeyPatch) -> None:
    """The poll after a failed attempt starts where the last poll ended."""

    def mutant(last: PollRange | None, *, loaded: bool, audit_due: bool) -> PollRange:
        del loaded
        return next_range(last, loaded=True, audit_due=audit_due)

    patch.setattr(files, "next_range", mutant)


def only_the_window_decides_what_is_left(patch: pytest.MonkeyPatch) -> None:
    """Planned files count as loaded."""
    poll = FilesSource.poll

    def mutant(self: FilesSource, progress: Progress, *, report: ReportPoll) -> Poll:
        self._planned = ()
        return poll(self, progress, report=report)

    patch.setattr(FilesSource, "poll", mutant)


class _Spied(Iterator[LoadedItem]):
    """New files; ``last`` is the last one that was listed."""

    def __init__(self, new: Any) -> None:
        self._new = new
        self.last: LoadedItem | None = None

    def __next__(self) -> LoadedItem:
        self.last = next(self._new)
        return self.last

    @property
    def changed(self) -> int:
        return int(self._new.changed)


def a_poll_starts_after_the_extra_file(patch: pytest.MonkeyPatch) -> None:
    """The extra file, which shows that there are more files, counts as polled."""
    poll = FilesSource.poll
    kept: Any = FilesSource._first_files

    def spying(self: Any, new: Any) -> Any:
        spied = _Spied(new)
        found = kept(self, spied)
        self._extra = spied.last
        return found

    def mutant(self: Any, *args: Any, **rest: Any) -> Any:
        found = poll(self, *args, **rest)
        if not found.waiting.complete:
            self._range = replace(self._range, end=self._extra.key)
        return found

    patch.setattr(FilesSource, "_first_files", spying)
    patch.setattr(FilesSource, "poll", mutant)


def all_prefixes_have_one_high_water_mark(patch: pytest.MonkeyPatch) -> None:
    """A poll lists keys after the newest key of the whole job."""
    newest = JobFiles.newest

    def mutant(self: JobFiles, prefix: str) -> str:
        del prefix
        return newest(self, "")

    patch.setattr(JobFiles, "newest", mutant)


def pruned_before_is_lost_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """The time before which files were pruned is stored only in memory."""
    prune = JobFiles.prune

    def remembering(self: Any, before: datetime, **rest: Any) -> None:
        self._pruned_before = before
        prune(self, before, **rest)

    patch.setattr(JobFiles, "prune", remembering)
    patch.setattr(
        JobFiles, "pruned_before", property(lambda self: vars(self).get("_pruned_before"))
    )


def an_audit_is_never_due(patch: pytest.MonkeyPatch) -> None:
    """All files are listed only at the start."""
    patch.setattr(FilesSource, "_audit_due", lambda _: False)


def an_audit_is_always_due(patch: pytest.MonkeyPatch) -> None:
    """Every poll lists all files."""
    patch.setattr(FilesSource, "_audit_due", lambda _: True)


def an_audit_is_due_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """The next audit is due at a time of the wall clock."""

    def mutant(self: Any) -> bool:
        due_at = self._wall_audit_at
        return due_at is None or self._clock.now() >= due_at

    end_audit = FilesSource._end_audit

    def ending(self: Any, scan: Any) -> None:
        end_audit(self, scan)
        self._wall_audit_at = self._clock.now() + self._options.audit_interval

    patch.setattr(FilesSource, "_wall_audit_at", None, raising=False)
    patch.setattr(FilesSource, "_audit_due", mutant)
    patch.setattr(FilesSource, "_end_audit", ending)


def a_start_trusts_the_high_water_mark(patch: pytest.MonkeyPatch) -> None:
    """The first poll of an owner continues where the last owner stopped."""

    def mutant(last: PollRange | None, *, loaded: bool, audit_due: bool) -> PollRange:
        if last is None:
            return PollRange(audit=False)
        return next_range(last, loaded=loaded, audit_due=audit_due)

    patch.setattr(files, "next_range", mutant)


def old_files_are_late_in_every_order(patch: pytest.MonkeyPatch) -> None:
    """The window applies to every file."""
    new = files._Scan.new

    def mutant(self: Any, meta: Any) -> bool:
        before = self.written_before
        return new(self, meta) and (before is None or meta.modified_at >= before)

    patch.setattr(files._Scan, "new", mutant)


def the_index_is_read_once(patch: pytest.MonkeyPatch) -> None:
    """The owner caches the loaded files at its start."""
    known = JobFiles.known

    def mutant(self: Any, keys: Any) -> dict[str, str]:
        cached: dict[str, Any] = vars(self).setdefault("_cached", {})
        fresh = [key for key in keys if key not in cached]
        found = known(self, fresh)
        cached |= {key: found.get(key) for key in fresh}
        return {key: cached[key] for key in keys if cached[key] is not None}

    patch.setattr(JobFiles, "known", mutant)


def the_newest_file_is_pruned_like_any_other(patch: pytest.MonkeyPatch) -> None:
    """Pruning also deletes the newest file from the index."""
    prune = JobFiles.prune
    patch.setattr(JobFiles, "prune", lambda self, before, **_: prune(self, before, prefixes=()))


def an_owner_keeps_a_stale_newest_file(patch: pytest.MonkeyPatch) -> None:
    """Pruning keeps the file that was the newest at the start of a poll, not at its end."""
    newest, prune = JobFiles.newest, JobFiles.prune

    def knowing(self: Any, prefix: str) -> str:
        known: dict[str, str] = vars(self).setdefault("_newest", {})
        known[prefix] = newest(self, prefix)
        return known[prefix]

    def mutant(self: Any, before: datetime, **rest: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(file_index, "_newest", lambda *given: self._newest[given[-1]])
            prune(self, before, **rest)

    patch.setattr(JobFiles, "newest", knowing)
    patch.setattr(JobFiles, "prune", mutant)


def every_server_is_listed_after_a_key(patch: pytest.MonkeyPatch) -> None:
    """A server without byte order is trusted to return the keys after a key."""
    scans: list[Any] = []

    def mutant(store: Any, glob: Any, *, after: Any) -> Any:
        del after
        return list_all(store, glob, after=scans[-1].start_after)

    kept = FilesSource._list

    def listing(self: Any, scan: Any, **rest: Any) -> Any:
        scans.append(scan)
        return kept(self, scan, **rest)

    patch.setattr(FilesSource, "_list", listing)
    patch.setattr(files, "list_all", mutant)


def a_listing_is_trusted_to_be_sorted(patch: pytest.MonkeyPatch) -> None:
    """The first files of a listing are assumed to be the smallest keys."""

    def mutant(self: Any, new: Any) -> tuple[list[LoadedItem], bool, int]:
        del self
        found = list(new)
        return found[: files.WINDOW_FILES], len(found) <= files.WINDOW_FILES, new.changed

    patch.setattr(FilesSource, "_first_files", mutant)


def a_poll_keeps_all_files(patch: pytest.MonkeyPatch) -> None:
    """The window has no limit."""

    def mutant(self: Any, new: Any) -> tuple[list[LoadedItem], bool, int]:
        del self
        return sorted(new, key=lambda file: file.key), True, new.changed

    patch.setattr(FilesSource, "_first_files", mutant)


def the_floor_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """The floor is ignored: every file that was not loaded is new."""
    poll = FilesSource.poll

    def mutant(self: Any, progress: Any, **rest: Any) -> Any:
        lowered = tuple(replace(split, floor=Horizon()) for split in progress)
        return poll(self, lowered, **rest)

    patch.setattr(FilesSource, "poll", mutant)


HISTORY_BY_MUTATION: dict[Mutation, History] = {
    a_failed_attempt_is_not_polled_again: named.AN_ATTEMPT_FAILS_IN_A_LONG_PASS,
    only_the_window_decides_what_is_left: named.AN_ATTEMPT_FAILS_IN_A_LONG_PASS,
    a_poll_starts_after_the_extra_file: named.MORE_FILES_THAN_A_POLL_KEEPS,
    all_prefixes_have_one_high_water_mark: named.AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE,
    pruned_before_is_lost_at_a_restart: named.THE_CLOCK_IS_SET_BACK_AFTER_FILES_WERE_PRUNED,
    an_audit_is_never_due: named.A_FILE_ARRIVES_LATE_WHILE_THE_JOB_RUNS,
    an_audit_is_always_due: named.A_FILE_ARRIVES_LATE_WHILE_THE_JOB_RUNS,
    an_audit_is_due_by_the_wall_clock: named.THE_CLOCK_IS_SET_BACK_AND_A_FILE_ARRIVES_LATE,
    a_start_trusts_the_high_water_mark: named.A_FILE_ARRIVES_LATE_WHILE_THE_JOB_IS_STOPPED,
    old_files_are_late_in_every_order: named.OLD_FILES_ARRIVE,
    the_index_is_read_once: named.EPOCHS_ARE_COMMITTED_ONE_BY_ONE,
    the_newest_file_is_pruned_like_any_other: named.THE_NEWEST_FILE_GROWS_OLD,
    an_owner_keeps_a_stale_newest_file: named.AN_OWNER_FREEZES_DURING_A_LISTING,
    every_server_is_listed_after_a_key: named.A_SERVER_OMITS_KEYS_AFTER_THE_FLOOR,
    a_listing_is_trusted_to_be_sorted: named.A_SERVER_LISTS_IN_NO_ORDER,
    a_poll_keeps_all_files: named.MORE_FILES_THAN_A_POLL_KEEPS,
    the_floor_is_ignored: named.THE_OFFSET_IS_SET_FORWARD_AND_BACK,
}
