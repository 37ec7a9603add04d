"""Versions of the protocol that are known to be wrong, built by patching the real code.

At least one history must fail for each version. This proves that the histories test every rule
of the protocol.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.catalog import catalog as catalogs
from penstock.control import changes, jobs
from penstock.epochs import commit, takeover
from penstock.epochs import loop as epoch_loop
from penstock.model.epoch import Attachment, CommitKind, Generation
from penstock.model.job import JobState
from penstock.model.split import Progress, mark_moved
from penstock.tables import chain as extension
from penstock.tables.chain import Extended, newest_commit, open_table
from penstock.testing.memory_tables import MemoryHandle

Mutation = Callable[[pytest.MonkeyPatch], None]


def pause_trusts_the_runner(patch: pytest.MonkeyPatch) -> None:
    """PAUSE only stores the desired state and assumes that the runner stops."""
    _skip_commit_of(CommitKind.FENCE, patch)


def drop_writes_no_closing_commit(patch: pytest.MonkeyPatch) -> None:
    """DROP only deletes the job from the catalog."""
    _skip_commit_of(CommitKind.CLOSING, patch)


def alter_is_a_catalog_event_only(patch: pytest.MonkeyPatch) -> None:
    """ALTER moves the position in the catalog but not in the table."""
    real = changes.change_job

    def mutant(state: JobState, *, kind: CommitKind, services: Any, **rest: Any) -> Any:
        if kind is not CommitKind.MOVE:
            return real(state, kind=kind, services=services, **rest)
        stored = _store(state, kind=kind, services=services, rest=rest)
        handle = open_table(services.tables, state.definition.table)
        newest = newest_commit(handle, job_id=state.id)
        moved = replace(
            newest.attachment,
            kind=CommitKind.MOVE,
            number=newest.attachment.number + 1,
            attempt_id=f"{stored.generation.id}-move",
            progress=rest["progress"],
        )
        services.catalog.apply_commit(state.id, moved, table_version=None, commit_seconds=None)
        return Extended(commit=newest)

    patch.setattr(jobs, "change_job", mutant)


def the_outcome_is_decided_by_the_number(patch: pytest.MonkeyPatch) -> None:
    """A commit with the expected number counts as this attempt's commit."""
    patch.setattr(commit, "is_same_attempt", lambda newest, mine: newest.number == mine.number)


def recovery_applies_before_it_fences(patch: pytest.MonkeyPatch) -> None:
    """The new owner continues from the progress that it read before its fence."""
    real, extend = takeover.take_over, extension.extend
    known: dict[str, Any] = {}

    def read_first(job_id: str, *, catalog: Any, **rest: Any) -> Any:
        before = catalog.job_by_id(job_id)
        known[job_id] = before.progress if before is not None else None
        return real(job_id, catalog=catalog, **rest)

    def fence(state: JobState, **rest: Any) -> Any:
        return extend(state, progress=known[state.id], **rest)

    def unplaced(number: int, *, before: Progress, after: Progress) -> Progress:
        stale = any(after is progress for progress in known.values())
        return after if stale else mark_moved(number, before=before, after=after)

    patch.setattr(extension, "mark_moved", unplaced)
    patch.setattr(epoch_loop, "take_over", read_first)
    patch.setattr(takeover, "extend", fence)


def pause_fences_before_it_stores_the_desired_state(patch: pytest.MonkeyPatch) -> None:
    """PAUSE commits its fence first."""
    real = changes.change_job

    def mutant(state: JobState, *, kind: CommitKind, services: Any, **rest: Any) -> Any:
        if kind is not CommitKind.FENCE:
            return real(state, kind=kind, services=services, **rest)
        extended = extension.extend(
            state,
            kind=kind,
            generation=state.generation,
            tables=services.tables,
            clock=services.clock,
        )
        current = services.catalog.job_by_id(state.id)
        generation = extension.next_generation(current.generation)
        desired = replace(rest["desired"], generation=generation)
        stored = services.catalog.append(state.id, desired, expected=None)
        if not isinstance(extended, Extended):
            raise changes.overtaken_error(state)
        assumed = replace(extended.commit.attachment, generation=stored.generation)
        return Extended(commit=replace(extended.commit, attachment=assumed))

    patch.setattr(jobs, "change_job", mutant)


def attachments_are_applied_over_a_gap(patch: pytest.MonkeyPatch) -> None:
    """The newest commit is applied even if commits before it are missing."""
    real = catalogs.Catalog.apply_commit

    def mutant(self: Any, job_id: str, attachment: Attachment, **rest: Any) -> Any:
        state = self.job_by_id(job_id)
        if state is not None and attachment.number > state.number + 1:
            return state
        return real(self, job_id, attachment, **rest)

    def newest_only(job_id: str, *, catalog: Any, handle: Any, applied: Any) -> Any:
        del applied
        newest = newest_commit(handle, job_id=job_id)
        return catalog.append(
            job_id,
            _committed(newest.attachment, newest.table_version),
            expected=None,
        )

    patch.setattr(catalogs.Catalog, "apply_commit", mutant)
    patch.setattr("penstock.epochs.takeover.catch_up", newest_only)


def the_catalog_comes_before_the_table(patch: pytest.MonkeyPatch) -> None:
    """An epoch is applied to the catalog before it is committed to the table."""
    real = commit._commit_and_verify

    def mutant(attachment: Attachment, acks: Any, *, parts: Any, **rest: Any) -> Any:
        parts.catalog.apply_commit(
            attachment.job_id, attachment, table_version=None, commit_seconds=None
        )
        return real(attachment, acks, parts=parts, **rest)

    patch.setattr(commit, "_commit_and_verify", mutant)


def the_handle_is_refreshed_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A commit uses the newest snapshot, so conflicts are never detected."""
    real = MemoryHandle.commit

    def mutant(self: MemoryHandle, attachment: Attachment, files: Any) -> int:
        self.refresh()
        return real(self, attachment, files)

    patch.setattr(MemoryHandle, "commit", mutant)


def the_number_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    """The owner commits without a check of the table's newest number."""

    def mutant(handle: Any, *, owner: JobState) -> None:
        del handle, owner

    patch.setattr(commit, "require_predecessor", mutant)
    patch.setattr(epoch_loop, "require_predecessor", mutant)


def the_copy_is_written_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """An attachment is copied although its commit may fail."""
    real = MemoryHandle.commit

    def mutant(self: MemoryHandle, attachment: Attachment, files: Any) -> int:
        self.write_copy(attachment)
        return real(self, attachment, files)

    patch.setattr(MemoryHandle, "commit", mutant)


def a_generation_has_no_random_id(patch: pytest.MonkeyPatch) -> None:
    """After a rollback of the catalog, two owners may have the same generation."""

    def mutant(*seen: Generation) -> Generation:
        number = 1 + max((g.number for g in seen), default=0)
        return Generation(number=number, id="same")

    for module in (
        "penstock.control.changes",
        "penstock.control.jobs",
        "penstock.epochs.takeover",
        "penstock.supervisor.supervisor",
    ):
        patch.setattr(f"{module}.next_generation", mutant)


def rejects_are_not_repeated_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A takeover does not commit the pending rejects of the last epoch."""

    def mutant(newest: Attachment, **rest: Any) -> None:
        del newest, rest

    patch.setattr(takeover, "commit_pending_rejects", mutant)


def _skip_commit_of(kind: CommitKind, patch: pytest.MonkeyPatch) -> None:
    real = changes.change_job

    def mutant(state: JobState, *, kind: CommitKind, services: Any, **rest: Any) -> Any:
        if kind is not skipped:
            return real(state, kind=kind, services=services, **rest)
        stored = _store(state, kind=kind, services=services, rest=rest)
        handle = open_table(services.tables, state.definition.table)
        newest = newest_commit(handle, job_id=state.id)
        assumed = replace(newest.attachment, generation=stored.generation)
        return Extended(commit=replace(newest, attachment=assumed))

    skipped = kind
    patch.setattr(jobs, "change_job", mutant)


def _store(
    state: JobState, *, kind: CommitKind, services: Any, rest: dict[str, Any]
) -> JobState:
    return changes._store(
        state,
        extension.next_generation(state.generation),
        desired=rest["desired"],
        kind=kind,
        services=services,
    )


def _committed(attachment: Attachment, table_version: int | None) -> Any:
    from penstock.model.events import Committed

    return Committed(attachment=attachment, table_version=table_version)


MUTATIONS: tuple[Mutation, ...] = (
    pause_trusts_the_runner,
    drop_writes_no_closing_commit,
    alter_is_a_catalog_event_only,
    the_outcome_is_decided_by_the_number,
    recovery_applies_before_it_fences,
    pause_fences_before_it_stores_the_desired_state,
    attachments_are_applied_over_a_gap,
    the_catalog_comes_before_the_table,
    the_handle_is_refreshed_before_the_commit,
    the_number_is_not_compared,
    the_copy_is_written_before_the_commit,
    a_generation_has_no_random_id,
    rejects_are_not_repeated_after_a_crash,
)
