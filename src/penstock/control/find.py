"""Find the object that a statement names, or raise UserError."""

from collections.abc import Sequence

from penstock.catalog.catalog import Catalog
from penstock.catalog.tables import TableRecord
from penstock.errors import Code, SelectError, UserError
from penstock.model.job import JobState
from penstock.model.secrets import SecretRecord


def find_job(name: str, *, catalog: Catalog) -> JobState:
    """Answer a job by name, or say that there is none."""
    state = catalog.job(name)
    if state is None:
        known = ", ".join(job.name for job in catalog.jobs())
        raise UserError(
            f'job "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Known jobs: {known}." if known else "Create one with CREATE JOB.",
        )
    return state


def find_streaming_job(name: str, *, catalog: Catalog) -> JobState:
    """Answer a streaming job by name; a routine load has statements of its own."""
    state = find_job(name, catalog=catalog)
    if state.definition.load is not None:
        raise UserError(
            f'"{name}" is a routine load',
            code=Code.STATE_ERR,
            hint="Write SHOW CREATE, PAUSE, RESUME, ALTER or STOP ROUTINE LOAD FOR it.",
        )
    return state


def find_routine_load(name: str, *, catalog: Catalog) -> JobState:
    """Answer a routine load by name; a streaming job has statements of its own."""
    state = catalog.job(name)
    if state is None:
        loads = [job for job in catalog.jobs() if job.definition.load is not None]
        known = ", ".join(job.name for job in loads if not job.stopped)
        raise UserError(
            f'routine load "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Known: {known}." if known else "Create one with CREATE ROUTINE LOAD.",
        )
    if state.definition.load is None:
        raise UserError(
            f'"{name}" is a streaming job',
            code=Code.STATE_ERR,
            hint="Write PAUSE, RESUME, ALTER or DROP JOB.",
        )
    return state


def find_table(name: str, *, catalog: Catalog) -> TableRecord:
    """Answer a table by name, or say that there is none."""
    record = catalog.table(name)
    if record is None:
        known = ", ".join(table.name for table in catalog.tables())
        raise UserError(
            f'table "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Known tables: {known}." if known else "Create one with CREATE TABLE.",
        )
    return record


def find_secret(name: str, *, catalog: Catalog) -> SecretRecord:
    """Answer a secret by name, or say that there is none."""
    record = catalog.secret(name)
    if record is None:
        known = ", ".join(secret.name for secret in catalog.secrets())
        raise UserError(
            f'secret "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Known secrets: {known}." if known else "Create one with CREATE SECRET.",
        )
    return record


def require_unused(used_by: str, users: Sequence[JobState], *, instead: str = "") -> None:
    """Refuse to drop what jobs need; say which they are, and which statements end them."""
    if not users:
        return
    named = ", ".join(f'{user.definition.kind} "{user.name}"' for user in users)
    endings = "; ".join(user.definition.ending for user in users)
    raise UserError(
        f"{used_by} {named}",
        code=Code.STATE_ERR,
        hint=f"First write {endings}{f', or {instead}' if instead else ''}.",
    )


def placed(
    error: SelectError, select: str, *, begins_at: tuple[int, int], hint: str = ""
) -> UserError:
    """Answer an error of a SELECT with its line and column in the statement."""
    if error.offset is None:
        return UserError(
            error.message, code=error.code, detail=error.detail, hint=error.hint or hint
        )
    line, column = begins_at
    before = select[: error.offset].split("\n")
    line += len(before) - 1
    column = column + error.offset if len(before) == 1 else len(before[-1]) + 1
    known = UserError(error.message, code=error.code, hint=error.hint or hint)
    return known.at(line=line, column=column)
