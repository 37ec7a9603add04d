"""A job's chain of commits: read it from a table's log, extend it, apply it to the catalog.

The chain of a job is the list of all table commits with the job's id. The commits are numbered
from 1, without a gap. These are all commits of the chain: the creation of the job, epochs,
changes of position, pauses, takeovers and the end of the job. Each commit has an attachment
with the job's progress after that commit.

Invariant: a chain that was read is contiguous. A commit that is missing, out of order or of an
unknown format raises an error; no commit is skipped.

Invariant: the table is the source of truth for progress, and the catalog follows it. A writer
increases the generation in the catalog before it commits. A newer generation in the table has
one of two causes. Another writer took over the job, or the catalog was restored to an older
state.

A takeover normally needs only the newest one or two commits of a job. So the log is read
backwards from a known version, one small file at a time, and is never listed. A copy of every
attachment remains when the log is cleaned.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.codec import from_data
from penstock.model.epoch import (
    ATTACHMENT_FORMAT,
    Attachment,
    CommitKind,
    Generation,
    Statistics,
    Timings,
)
from penstock.model.job import JobState, TableRef
from penstock.model.split import Progress, mark_moved
from penstock.storage.store import ObjectMissingError
from penstock.tables.folder import LOG_FOLDER, TableFolder, job_folder
from penstock.tables.table import ChainCommit, TableHandle, Tables

if TYPE_CHECKING:
    from penstock.catalog.catalog import Catalog

ATTACHMENT_KEY = "penstock"
TRIES_MAX = 50

# A table does not record the kinds of its jobs, so hints name several statements.
_DROP_STATEMENTS = "DROP JOB, STOP ROUTINE LOAD, or DROP STREAMING TABLE … KEEP TABLE"


def log_entry(version: int) -> str:
    """Return the name of the log entry of a table version."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def logged_commits(folder: TableFolder, job_id: str, *, version: int) -> Iterator[ChainCommit]:
    """Yield the job's commits, from a version backwards to the start of the retained log."""
    for number in range(version, -1, -1):
        try:
            data = _attachment_data(folder, number, job_id)
        except ObjectMissingError:
            return
        if data is not None:
            yield ChainCommit(attachment=_attachment(data), table_version=number)


def find_committed_version(
    folder: TableFolder, attachment: Attachment, *, after: int
) -> int | None:
    """Return the version above ``after`` with this attempt's commit; None if there is none.

    Also sync the log up to that version.
    """
    version = after + 1
    while True:
        try:
            data = _attachment_data(folder, version, attachment.job_id)
        except ObjectMissingError:
            return None
        # Entries of other writers are synced too, because a log with a gap cannot be read.
        folder.store.sync([folder.key(log_entry(version))])
        if data is not None and data.get("attempt_id") == attachment.attempt_id:
            folder.store.sync([folder.key(LOG_FOLDER)])
            return version
        version += 1


def copy_key(folder: TableFolder, job_id: str, number: int) -> str:
    """Return the key of the copy of an attachment."""
    return folder.key(f"{job_folder(job_id)}/{number}.json")


def read_copy(folder: TableFolder, job_id: str, number: int) -> Attachment | None:
    """Return the copy of an attachment; None if there is none."""
    try:
        text = folder.store.read_bytes(copy_key(folder, job_id, number))
    except ObjectMissingError:
        return None
    return _attachment(_decoded(text, where=f"the copy of commit {number}"))


def _attachment_data(folder: TableFolder, version: int, job_id: str) -> dict[str, Any] | None:
    content = folder.store.read_bytes(folder.key(log_entry(version)))
    key = f'"{ATTACHMENT_KEY}"'.encode()
    if key not in content or job_id.encode() not in content:
        return None
    where = f"log entry {version}"
    for line in content.split(b"\n"):
        if b'"commitInfo"' in line and key in line:
            info = _decoded(line, where=where).get("commitInfo", {})
            data = _decoded(info.get(ATTACHMENT_KEY, "{}"), where=where)
            if data.get("job_id") == job_id:
                return data
    return None


def _decoded(text: str | bytes, *, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(
            f"{where} is not valid JSON", code=Code.CANNOT_RESUME_ERR, detail=f"{error}."
        ) from error
    return data if isinstance(data, dict) else {}


def _attachment(data: dict[str, Any]) -> Attachment:
    # The format is checked first, because another format may have other fields.
    require_known_format(data.get("format"), number=data.get("number"))
    return from_data(Attachment, data)


def chain_above(
    number: int,
    *,
    newest: int,
    logged: Iterator[ChainCommit],
    copy_of: Callable[[int], Attachment | None],
) -> tuple[ChainCommit, ...]:
    """Return the commits above a number, ascending; ``logged`` yields the newest first."""
    found: list[ChainCommit] = []
    for expected in range(newest, number, -1):
        commit = next(logged, None)
        if commit is None:
            copy = copy_of(expected)
            if copy is None:
                raise _broken(
                    f"commit {expected} of the job is missing from the table's log and from "
                    "its copies",
                    detail=f"The catalog has the commits up to {number}, the table up to "
                    f"{newest}.",
                )
            commit = ChainCommit(attachment=copy, table_version=None)
        if commit.attachment.number != expected:
            raise _broken(
                f"the table has commit {commit.attachment.number} of the job instead of commit "
                f"{expected}",
                detail="The commits of a job must have consecutive numbers.",
            )
        found.append(commit)
    return tuple(reversed(found))


def _broken(message: str, *, detail: str) -> UserError:
    return UserError(
        message,
        code=Code.CANNOT_RESUME_ERR,
        detail=detail,
        hint="Restore the table from a backup, or drop the job and create it again with the "
        "offset to start from.",
    )


def require_known_format(written: object, *, number: object) -> None:
    """Raise UserError if this version cannot read the format of an attachment."""
    if written != ATTACHMENT_FORMAT:
        raise UserError(
            f"commit {number} of the job has attachment format {written}, but this version "
            f"of Penstock reads format {ATTACHMENT_FORMAT}",
            code=Code.CANNOT_RESUME_ERR,
            hint=(
                "Run the job with the version of Penstock that wrote the commit. Or drop the "
                "job and create it again at its current position; the table keeps its rows."
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """The commit is in the table."""

    commit: ChainCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The chain has ended, because the job was dropped."""

    commit: ChainCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """The table has a newer generation than this writer."""

    generation: Generation


Extension = Extended | Closed | Superseded


def next_generation(*seen: Generation) -> Generation:
    """Return a generation newer than all given ones; the first of a job if none are given."""
    return Generation(number=1 + max((g.number for g in seen), default=0), id=uuid.uuid4().hex)


def opening_attachment(
    *,
    job_id: str,
    table_id: str,
    generation: Generation,
    progress: Progress,
    clock: Clock,
) -> Attachment:
    """Return the first attachment of a job's chain."""
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
        progress=mark_moved(1, before=(), after=progress),
        statistics=Statistics(),
        cumulative=Statistics(),
        items=(),
        timings=Timings(),
        committed_at=clock.now(),
    )


def open_table(tables: Tables, table: TableRef) -> TableHandle:
    """Open a job's table at its newest version; raise UserError if it is another table."""
    handle = tables.open(table.location)
    if handle.table_id != table.id:
        raise UserError(
            f'table "{table.name}" is not the table that the job was created for',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"Table id {handle.table_id} is at {table.location}, expected {table.id}.",
            hint=(
                f"Restore the table. Or end the job ({_DROP_STATEMENTS}), drop the table, and "
                "create both again."
            ),
        )
    return handle


def newest_commit(handle: TableHandle, *, job_id: str) -> ChainCommit:
    """Return the job's newest commit; raise UserError if the table has none."""
    number = handle.newest_number(job_id)
    if number == 0:
        raise UserError(
            "the table has no commit of the job",
            code=Code.CANNOT_RESUME_ERR,
            detail=f"Job id {job_id}, table version {handle.version}.",
            hint=f"End the job ({_DROP_STATEMENTS}) and create it again.",
        )
    return handle.chain_after(job_id, number - 1)[-1]


def require_no_rollback(newest: int, *, state: JobState) -> None:
    """Raise UserError if the table has fewer commits of the job than the catalog.

    Another commit to such a table would hide the loss of rows.
    """
    if newest < state.number:
        raise UserError(
            f'table "{state.definition.table.name}" has fewer commits than the catalog',
            code=Code.TABLE_CHANGED_ERR,
            detail=(
                f"The job's newest commit is {newest} in the table, {state.number} in the "
                "catalog."
            ),
            hint=(
                "The table was probably restored to an older version. Run "
                f"{state.definition.drop_statement} and create the job again."
            ),
        )


def extend(
    state: JobState,
    *,
    kind: CommitKind,
    generation: Generation,
    tables: Tables,
    clock: Clock,
    progress: Progress | None = None,
) -> Extension:
    """Commit an attachment without rows to the job's chain, and read it back.

    Every try reopens the table and compares the newest commit with the earlier tries. So a try
    also finds an earlier commit whose response was lost, or that appeared late.
    """
    own_attempts: set[str] = set()
    last_error: CommitOutcomeUnknownError | None = None
    for _ in range(TRIES_MAX):
        handle = open_table(tables, state.definition.table)
        newest = newest_commit(handle, job_id=state.id)
        require_no_rollback(newest.attachment.number, state=state)
        handle.write_copy(newest.attachment)
        if newest.attachment.attempt_id in own_attempts:
            return Extended(commit=newest)
        if newest.attachment.kind is CommitKind.CLOSING:
            return Closed(commit=newest)
        if newest.attachment.generation.newer_than(generation):
            return Superseded(generation=newest.attachment.generation)
        attachment = replace(
            _without_rows(newest.attachment, progress=progress),
            kind=kind,
            generation=generation,
            revision=state.definition.revision,
            committed_at=clock.now(),
        )
        own_attempts.add(attachment.attempt_id)
        try:
            handle.commit(attachment, ())
        except CommitOutcomeUnknownError as error:
            last_error = error
        else:
            reached(CrashPoint.CHAIN_EXTENDED)
    raise ExternalError(
        f'table "{state.definition.table.name}" did not accept {TRIES_MAX} commits in a row',
        code=Code.TABLE_ERR,
        detail=f"The last error was: {last_error}.",
        hint="Check the table's location for other writers, and for a full or read-only disk.",
    ) from last_error


def _without_rows(newest: Attachment, *, progress: Progress | None) -> Attachment:
    """Return the next attachment, without rows; by default, the progress does not change."""
    number = newest.number + 1
    if progress is None:
        progress = newest.progress
    else:
        progress = mark_moved(number, before=newest.progress, after=progress)
    return replace(
        newest,
        number=number,
        attempt=0,
        attempt_id=uuid.uuid4().hex,
        progress=progress,
        statistics=Statistics(),
        items=(),
        reject_files=(),
        timings=Timings(),
        # An exceeded limit is reported only once.
        window=replace(newest.window, tripped=None),
    )


def catch_up(
    job_id: str, *, catalog: "Catalog", handle: TableHandle, applied: CrashPoint
) -> JobState | None:
    """Apply the commits that the catalog lacks, in order; return the job's new state.

    Return None if the job does not exist.
    """
    state = catalog.job_by_id(job_id)
    if state is None:
        return None
    if handle.newest_number(job_id) < state.number:
        # Another writer may have committed between the handle's snapshot and the read above.
        handle.refresh()
    require_no_rollback(handle.newest_number(job_id), state=state)
    for commit in handle.chain_after(job_id, state.number):
        handle.write_copy(commit.attachment)
        state = catalog.apply_commit(
            job_id, commit.attachment, table_version=commit.table_version, commit_seconds=None
        )
        reached(applied)
    return state
