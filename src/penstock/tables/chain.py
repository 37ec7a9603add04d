"""A job's chain of commits: read it from a table's log, extend it, apply it.

Invariant: a chain that was read is contiguous. A commit that is missing, out of order or of an
unknown format raises an error; none is skipped.

Invariant: the table decides about progress and the catalog follows. Every change of a job's
position, every pause, takeover and end is a commit under the job's id, numbered without a gap.
A writer increases the generation in the catalog before it commits. A writer that finds a newer
generation in the table has been replaced, or uses a catalog that was rolled back.

A start normally needs the newest one or two commits of a job. The log is therefore read
backwards from a known version, one small file at a time, and never listed. A copy of every
attachment outlives the cleaning of the log.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.codec import from_data, to_text
from penstock.model.epoch import (
    ATTACHMENT_FORMAT,
    Attachment,
    CommitKind,
    Generation,
    Statistics,
    Timings,
)
from penstock.model.job import JobState, TableRef
from penstock.model.split import Progress, placed_at
from penstock.storage.store import ObjectMissingError
from penstock.tables.folder import LOG_FOLDER, TableFolder
from penstock.tables.table import ChainCommit, TableHandle, Tables

ATTACHMENT_KEY = "penstock"
TRIES_MAX = 50

_COPIES_FOLDER = "_penstock"
_HINT = "Restore the table from a backup, or create the job anew with the offset to start from."
# A table does not record the kinds of the jobs that load it.
_ENDINGS = "DROP JOB, or STOP ROUTINE LOAD"


def log_entry(version: int) -> str:
    """Return the name of the object that holds one version of a table's log."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def logged_commits(folder: TableFolder, job_id: str, *, version: int) -> Iterator[ChainCommit]:
    """Yield the job's commits from a version backwards, up to the cleaned part of the log."""
    for number in range(version, -1, -1):
        try:
            data = _attachment_data(folder, number, job_id)
        except ObjectMissingError:
            return
        if data is not None:
            yield ChainCommit(attachment=_attachment(data), table_version=number)


def landed_version(folder: TableFolder, attachment: Attachment, *, after: int) -> int | None:
    """Sync the log and return the version above ``after`` that holds an attempt, if any."""
    version = after + 1
    while True:
        try:
            data = _attachment_data(folder, version, attachment.job_id)
        except ObjectMissingError:
            return None
        # Earlier entries of other writers are synced too: a log with a gap cannot be read.
        folder.store.sync([folder.key(log_entry(version))])
        if data is not None and data.get("attempt_id") == attachment.attempt_id:
            folder.store.sync([folder.key(LOG_FOLDER)])
            return version
        version += 1


def write_copy(folder: TableFolder, attachment: Attachment) -> None:
    """Write a copy of an attachment beside the table, unless there is one."""
    key = _copy_key(folder, attachment.job_id, attachment.number)
    folder.store.write_new(key, to_text(attachment).encode())


def read_copy(folder: TableFolder, job_id: str, number: int) -> Attachment | None:
    """Read the copy of an attachment; None if there is none."""
    try:
        text = folder.store.read_bytes(_copy_key(folder, job_id, number))
    except ObjectMissingError:
        return None
    return _attachment(_decoded(text, where=f"the copy of commit {number}"))


def _copy_key(folder: TableFolder, job_id: str, number: int) -> str:
    return folder.key(f"{_COPIES_FOLDER}/{job_id}/{number}.json")


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
            f"{where} is not readable as JSON", code=Code.CANNOT_RESUME_ERR, detail=f"{error}."
        ) from error
    return data if isinstance(data, dict) else {}


def _attachment(data: dict[str, Any]) -> Attachment:
    # The format is checked first: another format may have other fields.
    expect_known_format(data.get("format"), number=data.get("number"))
    return from_data(Attachment, data)


def chain_above(
    number: int,
    *,
    newest: int,
    logged: Iterable[ChainCommit],
    copy_of: Callable[[int], Attachment | None],
) -> tuple[ChainCommit, ...]:
    """Return the commits above a number, ascending; ``logged`` yields the newest first."""
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
    """Raise UserError if an attachment has a format that this version does not know."""
    if written != ATTACHMENT_FORMAT:
        raise UserError(
            f"commit {number} of the job has the attachment format {written}, "
            f"this version reads {ATTACHMENT_FORMAT}",
            code=Code.CANNOT_RESUME_ERR,
            hint=(
                "Run the job with the version of Penstock that wrote the commit; or create it "
                "again from where it stands. The table and its rows stay."
            ),
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


class ProgressStore(Protocol):
    """The part of the catalog that follows chains."""

    def job_by_id(self, job_id: str) -> JobState | None:
        """Return the state of a job; None if there is no such job."""
        ...

    def apply_commit(
        self,
        job_id: str,
        attachment: Attachment,
        *,
        table_version: int | None,
        commit_seconds: float | None,
    ) -> JobState:
        """Apply the next commit of a chain; ignore older ones, raise an error for a gap."""
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
    """The table holds a newer generation than this writer's."""

    generation: Generation


Extension = Landed | Closed | Surpassed


def next_generation(*seen: Generation) -> Generation:
    """Return a generation above all those seen."""
    return Generation(number=1 + max(g.number for g in seen), id=uuid.uuid4().hex)


def first_generation() -> Generation:
    """Return the generation of a new job."""
    return Generation(number=1, id=uuid.uuid4().hex)


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
        progress=placed_at(1, before=(), after=progress),
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
                f"Put the table back, or end the job ({_ENDINGS}), drop the table and create "
                "both again."
            ),
        )
    return handle


def newest_commit(handle: TableHandle, *, job_id: str) -> ChainCommit:
    """Return the job's newest commit; raise UserError if the table has none."""
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
    """Raise UserError if the table holds fewer commits of the job than the catalog.

    A further commit after such a chain would hide the loss of rows.
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
    progress: Progress | None = None,
) -> Extension:
    """Commit an attachment without rows after the newest one, and read it back.

    Every try opens the table anew and looks for the attempts of earlier tries. A commit whose
    answer was lost or that landed late is therefore recognised.
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
            _following(newest.attachment, kind=kind, generation=generation, clock=clock),
            revision=state.definition.revision,
            progress=_placed(newest.attachment, progress),
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


def _placed(newest: Attachment, progress: Progress | None) -> Progress:
    if progress is None:
        return newest.progress
    return placed_at(newest.number + 1, before=newest.progress, after=progress)


def _following(
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
        items=(),
        reject_files=(),
        timings=Timings(),
        committed_at=clock.now(),
        # A limit that was exceeded is reported once.
        window=replace(newest.window, tripped=None),
    )


def catch_up(
    job_id: str, *, store: ProgressStore, handle: TableHandle, passed: Callable[[], None]
) -> JobState | None:
    """Apply the commits that the catalog lacks, in order; return None if the job is gone."""
    state = store.job_by_id(job_id)
    if state is None:
        return None
    if handle.newest_number(job_id) < state.number:
        # Another writer may have committed between the handle's snapshot and the read above.
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
    """Pass the crash point after an applied commit of a statement."""
    reached(CrashPoint.STATEMENT_APPLIED)


def recovery_passed() -> None:
    """Pass the crash point after an applied commit of recovery."""
    reached(CrashPoint.RECOVERY_APPLIED)
