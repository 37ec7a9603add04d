"""Versions of the source that are known to be wrong, each with a history that shows it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from penstock.catalog import items as file_index
from penstock.catalog.items import JobFiles
from penstock.model.epoch import LoadedItem
from penstock.model.split import Horizon
from penstock.sources.files import source as files
from penstock.sources.files.globs import list_all
from penstock.sources.files.source import FilesSource, PollRange, next_range
from tests.property.audit import told
from tests.property.audit.steps import History

Mutation = Callable[[pytest.MonkeyPatch], None]


def a_failed_attempt_is_not_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    """The look after an attempt begins where the last one ended, whatever became of it."""

    def mutant(last: PollRange | None, *, settled: bool, audit_due: bool) -> PollRange:
        del settled
        return next_range(last, settled=True, audit_due=audit_due)

    patch.setattr(files, "next_range", mutant)


def only_the_window_tells_what_is_left(patch: pytest.MonkeyPatch) -> None:
    """What was planned counts as loaded."""
    patch.setattr(FilesSource, "_settled", lambda self: not self._window)


def a_look_begins_behind_the_extra_file(patch: pytest.MonkeyPatch) -> None:
    """The file that shows that there are more counts as seen."""
    kept, poll = FilesSource._kept, FilesSource.poll

    def spying(self: Any, new: Iterator[LoadedItem]) -> Any:
        def spied() -> Iterator[LoadedItem]:
            for self._extra in new:
                yield self._extra

        return kept(self, spied())

    def mutant(self: Any, *args: Any, **rest: Any) -> Any:
        found = poll(self, *args, **rest)
        if not found.waiting.complete:
            self._range = replace(self._range, end=self._extra.key)
        return found

    patch.setattr(FilesSource, "_kept", spying)
    patch.setattr(FilesSource, "poll", mutant)


def all_prefixes_have_one_high_water_mark(patch: pytest.MonkeyPatch) -> None:
    """A look asks for keys behind the newest one of the whole job."""
    newest = JobFiles.newest

    def mutant(self: JobFiles, prefix: str) -> str:
        del prefix
        return newest(self, "")

    patch.setattr(JobFiles, "newest", mutant)


def pruning_is_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """The time before which files were forgotten is kept in memory only."""
    prune = JobFiles.prune

    def remembering(self: Any, before: datetime, **rest: Any) -> None:
        self._pruned_before = before
        prune(self, before, **rest)

    patch.setattr(JobFiles, "prune", remembering)
    patch.setattr(
        JobFiles, "pruned_before", property(lambda self: vars(self).get("_pruned_before"))
    )


def an_audit_is_never_due(patch: pytest.MonkeyPatch) -> None:
    """Everything is listed at the start only."""
    patch.setattr(FilesSource, "_audit_due", lambda _: False)


def an_audit_is_always_due(patch: pytest.MonkeyPatch) -> None:
    """Every look lists everything."""
    patch.setattr(FilesSource, "_audit_due", lambda _: True)


def an_audit_is_due_by_the_clock_on_the_wall(patch: pytest.MonkeyPatch) -> None:
    """The time of the next audit is what the clock will show."""

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
    """The first look of an owner goes on where the last owner stopped."""

    def mutant(last: PollRange | None, *, settled: bool, audit_due: bool) -> PollRange:
        if last is None:
            return PollRange(audit=False)
        return next_range(last, settled=settled, audit_due=audit_due)

    patch.setattr(files, "next_range", mutant)


def old_files_are_late_wherever_they_sort(patch: pytest.MonkeyPatch) -> None:
    """The window holds for every file."""
    new = files._Scan.new

    def mutant(self: Any, meta: Any, prefix: str) -> bool:
        before = self.written_before
        return new(self, meta, prefix) and (before is None or meta.modified_at >= before)

    patch.setattr(files._Scan, "new", mutant)


def the_index_is_asked_once(patch: pytest.MonkeyPatch) -> None:
    """What was loaded when the owner began is what it goes by."""
    known = JobFiles.known

    def mutant(self: Any, keys: Any) -> dict[str, str]:
        answers: dict[str, Any] = vars(self).setdefault("_answers", {})
        fresh = [key for key in keys if key not in answers]
        found = known(self, fresh)
        answers |= {key: found.get(key) for key in fresh}
        return {key: answers[key] for key in keys if answers[key] is not None}

    patch.setattr(JobFiles, "known", mutant)


def the_newest_file_is_forgotten_like_any_other(patch: pytest.MonkeyPatch) -> None:
    """Nothing is spared when old files are forgotten."""
    prune = JobFiles.prune
    patch.setattr(JobFiles, "prune", lambda self, before, **_: prune(self, before, prefixes=()))


def an_owner_spares_the_newest_file_that_it_knew(patch: pytest.MonkeyPatch) -> None:
    """What must be kept is found out when a look begins, not when it ends."""
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


def every_server_is_asked_behind_a_key(patch: pytest.MonkeyPatch) -> None:
    """A server without order is trusted to know what lies behind a key."""
    scans: list[Any] = []

    def mutant(store: Any, glob: Any, *, after: Any) -> Any:
        del after
        return list_all(store, glob, after=scans[-1].begin)

    take = FilesSource._take

    def taking(self: Any, store: Any, scan: Any, **rest: Any) -> Any:
        scans.append(scan)
        return take(self, store, scan, **rest)

    patch.setattr(FilesSource, "_take", taking)
    patch.setattr(files, "list_all", mutant)


def a_listing_is_trusted_to_be_sorted(patch: pytest.MonkeyPatch) -> None:
    """The first files that a server answers are taken for the first ones."""

    def mutant(self: Any, new: Iterator[LoadedItem]) -> tuple[list[LoadedItem], bool]:
        del self
        found = list(new)
        return found[: files.WINDOW_FILES], len(found) <= files.WINDOW_FILES

    patch.setattr(FilesSource, "_kept", mutant)


def a_look_keeps_everything(patch: pytest.MonkeyPatch) -> None:
    """The window has no limit."""

    def mutant(self: Any, new: Iterator[LoadedItem]) -> tuple[list[LoadedItem], bool]:
        del self
        return sorted(new, key=lambda file: file.key), True

    patch.setattr(FilesSource, "_kept", mutant)


def the_floor_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Only what was loaded decides what is new."""
    poll = FilesSource.poll

    def mutant(self: Any, progress: Any, **rest: Any) -> Any:
        lowered = tuple(replace(split, floor=Horizon()) for split in progress)
        return poll(self, lowered, **rest)

    patch.setattr(FilesSource, "poll", mutant)


HISTORY_BY_MUTATION: dict[Mutation, History] = {
    a_failed_attempt_is_not_looked_for_again: told.AN_ATTEMPT_FAILS_IN_A_LONG_PASS,
    only_the_window_tells_what_is_left: told.AN_ATTEMPT_FAILS_IN_A_LONG_PASS,
    a_look_begins_behind_the_extra_file: told.MORE_FILES_THAN_A_LOOK_KEEPS,
    all_prefixes_have_one_high_water_mark: told.AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE,
    pruning_is_forgotten_at_a_restart: told.THE_CLOCK_IS_SET_BACK_AFTER_FILES_WERE_FORGOTTEN,
    an_audit_is_never_due: told.A_FILE_COMES_LATE_TO_A_JOB_THAT_RUNS_ON,
    an_audit_is_always_due: told.A_FILE_COMES_LATE_TO_A_JOB_THAT_RUNS_ON,
    an_audit_is_due_by_the_clock_on_the_wall: told.THE_CLOCK_IS_SET_BACK_AND_A_FILE_COMES_LATE,
    a_start_trusts_the_high_water_mark: told.A_FILE_COMES_LATE_WHILE_NOBODY_RUNS,
    old_files_are_late_wherever_they_sort: told.OLD_FILES_ARE_BROUGHT,
    the_index_is_asked_once: told.EPOCHS_ARE_COMMITTED_ONE_BY_ONE,
    the_newest_file_is_forgotten_like_any_other: told.THE_NEWEST_FILE_GROWS_OLD,
    an_owner_spares_the_newest_file_that_it_knew: told.AN_OWNER_IS_FROZEN_WHILE_IT_LISTS,
    every_server_is_asked_behind_a_key: told.A_SERVER_HIDES_KEYS_BEHIND_THE_FLOOR,
    a_listing_is_trusted_to_be_sorted: told.A_SERVER_ANSWERS_IN_NO_ORDER,
    a_look_keeps_everything: told.MORE_FILES_THAN_A_LOOK_KEEPS,
    the_floor_is_not_looked_at: told.THE_OFFSET_IS_SET_FORTH_AND_BACK,
}
