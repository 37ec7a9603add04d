"""A job's chain of commits: read it, extend it, apply it.

Invariant: what is answered is contiguous. A commit that is found nowhere, stands out of order
or has an unknown format ends the search with an error; none is ever skipped.

Invariant: the table is the truth about progress and the catalog follows it. Every change of a
job's position, every pause, takeover and end is a commit under the job's id, numbered without a
gap. Whoever writes one first grew the generation in the catalog; whoever finds a generation it
cannot know has been overtaken, or looks at a catalog that was rolled back.
"""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.epoch import (
    ATTACHMENT_FORMAT,
    Attachment,
    CommitKind,
    Generation,
    Statistics,
    Timings,
)
from penstock.model.job import JobState, TableRef
from penstock.model.split import SplitProgress
from penstock.tables.table import ChainCommit, TableHandle, Tables

_HINT = "Restore the table from a backup, or create the job anew with the offset to start from."


def chain_above(
    number: int,
    *,
    newest: int,
    logged: Iterable[ChainCommit],
    copy_of: Callable[[int], Attachment | None],
) -> tuple[ChainCommit, ...]:
    """Answer the commits above a number, ascending; ``logged`` gives the job's newest first."""
    found: list[ChainCommit] = []
    wanted = newest
    if wanted > number:
        for commit in logged:
            _expect_number(commit.attachment.number, wanted=wanted)
            found.append(commit)
            wanted -= 1
            if wanted <= number:
                break
    while wanted > number:
        attachment = copy_of(wanted)
        if attachment is None:
            raise _missing(wanted, above=number, newest=newest)
        _expect_number(attachment.number, wanted=wanted)
        found.append(ChainCommit(attachment=attachment, table_version=None))
        wanted -= 1
    return tuple(reversed(found))


def expect_known_format(written: object, *, number: object) -> None:
    """Refuse an attachment of a format that this version does not know."""
    if written != ATTACHMENT_FORMAT:
        raise UserError(
            f"commit {number} of the job has the attachment format {written}, "
            f"this version knows {ATTACHMENT_FORMAT}",
            code=Code.CANNOT_RESUME_ERR,
            hint="Run the job with the version of Penstock that wrote the commit.",
        )


def _expect_number(number: int, *, wanted: int) -> None:
    if number != wanted:
        raise UserError(
            f"the table has commit {number} of the job where commit {wanted} is due",
            code=Code.CANNOT_RESUME_ERR,
            detail="The commits of a job are numbered without a gap and without repetition.",
            hint=_HINT,
        )


def _missing(wanted: int, *, above: int, newest: int) -> UserError:
    return UserError(
        f"commit {wanted} of the job is neither in the table's log nor among its copies",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job knows its commits up to {above}, the table has them up to {newest}.",
        hint=_HINT,
    )


TRIES_MAX = 50
# A table does not tell of which kind the jobs are that load it.
_ENDINGS = "DROP JOB, or STOP ROUTINE LOAD"


class ProgressStore(Protocol):
    """The part of the catalog that follows the chain."""

    def job_by_id(self, job_id: str) -> JobState | None:
        """Answer what is remembered of a job."""
        ...

    def apply_commit(
        self,
        job_id: str,
        attachment: Attachment,
        *,
        table_version: int | None,
        commit_seconds: float | None,
    ) -> JobState:
        """Apply the next commit of the chain; older ones change nothing, a gap is refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The commit is in the table."""

    commit: ChainCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The chain has ended: the job was dropped."""

    commit: ChainCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Surpassed:
    """The table holds a generation that this writer cannot know."""

    generation: Generation


Extension = Landed | Closed | Surpassed


def next_generation(*seen: Generation) -> Generation:
    """Answer a generation above all those seen."""
    return Generation(number=1 + max(g.number for g in seen), id=uuid.uuid4().hex)


def first_generation() -> Generation:
    """Answer the generation of a new job."""
    return Generation(number=1, id=uuid.uuid4().hex)


def opening_attachment(
    *,
    job_id: str,
    table_id: str,
    generation: Generation,
    progress: tuple[SplitProgress, ...],
    clock: Clock,
) -> Attachment:
    """Answer the first attachment of a job's chain."""
    return Attachment(
        kind=CommitKind.OPENING,
        job_id=job_id,
        table_id=table_id,
        number=1,
        generation=generation,
        epoch=0,
        attempt=0,
        attempt_id=uuid.uuid4().hex,
        revision=1,
        progress=progress,
        statistics=Statistics(),
        cumulative=Statistics(),
        files=(),
        timings=Timings(),
        committed_at=clock.now(),
    )


def open_table(tables: Tables, table: TableRef) -> TableHandle:
    """Open a job's table freshly; refuse another table at the same place."""
    handle = tables.open(table.location)
    if handle.table_id != table.id:
        raise UserError(
            f'table "{table.name}" is not the table that the job was created for',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"Table id {handle.table_id} is at {table.location}, expected {table.id}.",
            hint=(
                f"Put the table back, or end the job ({_ENDINGS}), drop the table and create "
                "both again."
            ),
        )
    return handle


def newest_commit(handle: TableHandle, *, job_id: str) -> ChainCommit:
    """Answer the job's newest commit; a chain without a beginning cannot be resumed."""
    number = handle.newest_number(job_id)
    if number == 0:
        raise UserError(
            "table holds no commit of the job",
            code=Code.CANNOT_RESUME_ERR,
            detail=f"Job id {job_id}, table version {handle.version}.",
            hint=f"End the job ({_ENDINGS}) and create it again.",
        )
    return handle.chain_after(job_id, number - 1)[-1]


def require_followed(newest: int, *, state: JobState) -> None:
    """Refuse a table that holds less of the job's chain than the catalog has followed.

    Whoever wrote behind such a chain would hide that rows are gone.
    """
    if newest < state.number:
        raise UserError(
            f'table "{state.definition.table.name}" holds fewer commits than the job has made',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"Newest number in the table is {newest}, in the catalog {state.number}.",
            hint=(
                "The table was restored to an older version; write "
                f"{state.definition.ending} and create it again."
            ),
        )


def extend(
    state: JobState,
    *,
    kind: CommitKind,
    generation: Generation,
    tables: Tables,
    clock: Clock,
    progress: tuple[SplitProgress, ...] | None = None,
) -> Extension:
    """Write a commit without rows behind the newest one, and see it there.

    Every try opens the table anew. Whatever a try answers, only the next look at the table
    tells what became of it, so a lost answer and a late write are recognised as our own.
    """
    own_attempts: set[str] = set()
    refusal: CommitOutcomeUnknownError | None = None
    for _ in range(TRIES_MAX):
        handle = open_table(tables, state.definition.table)
        newest = newest_commit(handle, job_id=state.id)
        require_followed(newest.attachment.number, state=state)
        handle.write_copy(newest.attachment)
        if newest.attachment.attempt_id in own_attempts:
            return Landed(commit=newest)
        if newest.attachment.kind is CommitKind.CLOSING:
            return Closed(commit=newest)
        if newest.attachment.generation.newer_than(generation):
            return Surpassed(generation=newest.attachment.generation)
        attachment = replace(
            _behind(newest.attachment, kind=kind, generation=generation, clock=clock),
            revision=state.definition.revision,
            progress=newest.attachment.progress if progress is None else progress,
        )
        own_attempts.add(attachment.attempt_id)
        try:
            handle.commit(attachment, ())
        except CommitOutcomeUnknownError as error:
            refusal = error
        else:
            reached(CrashPoint.CHAIN_EXTENDED)
    raise ExternalError(
        f'table "{state.definition.table.name}" refused {TRIES_MAX} commits in a row',
        code=Code.TABLE_ERR,
        detail=f"The last answer was: {refusal}.",
        hint="Look for another writer, or a full or read-only disk, at the table's location.",
    ) from refusal


def _behind(
    newest: Attachment, *, kind: CommitKind, generation: Generation, clock: Clock
) -> Attachment:
    return replace(
        newest,
        kind=kind,
        number=newest.number + 1,
        generation=generation,
        attempt=0,
        attempt_id=uuid.uuid4().hex,
        statistics=Statistics(),
        files=(),
        reject_files=(),
        timings=Timings(),
        committed_at=clock.now(),
        # What a commit has found is said once.
        window=replace(newest.window, tripped=""),
    )


def catch_up(
    job_id: str, *, store: ProgressStore, handle: TableHandle, passed: Callable[[], None]
) -> JobState | None:
    """Apply every commit that the catalog has not seen, in order; None if the job is gone."""
    state = store.job_by_id(job_id)
    if state is None:
        return None
    if handle.newest_number(job_id) < state.number:
        # Somebody may have committed between the handle's snapshot and our look at the catalog.
        handle.refresh()
    require_followed(handle.newest_number(job_id), state=state)
    for commit in handle.chain_after(job_id, state.number):
        handle.write_copy(commit.attachment)
        state = store.apply_commit(
            job_id, commit.attachment, table_version=commit.table_version, commit_seconds=None
        )
        passed()
    return state


def statement_passed() -> None:
    """Pass the crash point behind an applied commit of a statement."""
    reached(CrashPoint.STATEMENT_APPLIED)


def recovery_passed() -> None:
    """Pass the crash point behind an applied commit of recovery."""
    reached(CrashPoint.RECOVERY_APPLIED)
