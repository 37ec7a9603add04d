"""Find the object that a statement names, or raise UserError."""

from collections.abc import Sequence
from typing import NoReturn

from penstock.catalog.catalog import Catalog, TableRecord
from penstock.errors import Code, SelectError, UserError
from penstock.model.job import JobState, TableRef
from penstock.model.job_kinds import STREAMING, JobKind
from penstock.model.secrets import SecretRecord


def find_job(name: str, *, catalog: Catalog, kind: JobKind | None = None) -> JobState:
    """Return a job by name, or raise UserError; ``kind`` is the required kind, if any."""
    state = catalog.job(name)
    if state is None:
        missing = kind or STREAMING
        jobs = [job for job in catalog.jobs() if not job.stopped]
        known = ", ".join(job.name for job in jobs if kind in (None, job.definition.kind))
        raise UserError(
            f'{missing.noun} "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Known {missing.noun}s: {known}."
            if known
            else f"Create one with {missing.create}.",
        )
    found = state.definition.kind
    if kind is not None and found is not kind:
        raise UserError(
            f'"{name}" is a {found.title}, not a {kind.title}',
            code=Code.STATE_ERR,
            hint=f"Use {found.statements}.",
        )
    return state


def find_table(name: str, *, catalog: Catalog) -> TableRecord:
    """Return a table by name, or raise UserError."""
    return catalog.table(name) or _missing("table", name, catalog.tables())


def find_secret(name: str, *, catalog: Catalog) -> SecretRecord:
    """Return a secret by name, or raise UserError."""
    return catalog.secret(name) or _missing("secret", name, catalog.secrets())


def _missing(what: str, name: str, others: Sequence[TableRecord | SecretRecord]) -> NoReturn:
    known = ", ".join(other.name for other in others)
    raise UserError(
        f'{what} "{name}" does not exist',
        code=Code.META_NOT_FOUND_ERR,
        hint=f"Known {what}s: {known}." if known else f"Create one with CREATE {what.upper()}.",
    )


def require_unused(used_by: str, users: Sequence[JobState], *, instead: str = "") -> None:
    """Raise UserError if jobs use an object; the hint lists statements that end the jobs."""
    if not users:
        return
    named = ", ".join(f'{user.definition.kind.noun} "{user.name}"' for user in users)
    endings = "; ".join(user.definition.drop_statement for user in users)
    raise UserError(
        f"{used_by} {named}",
        code=Code.STATE_ERR,
        hint=f"First run {endings}{f', or {instead}' if instead else ''}.",
    )


def readers_of(table_id: str, jobs: Sequence[JobState]) -> list[JobState]:
    """Return the jobs that stream from a table or join with it."""
    return [
        state
        for state in jobs
        if any(split.identity == table_id for split in state.progress)
        or any(table.id == table_id for table in _joined_tables(state))
    ]


def _joined_tables(state: JobState) -> tuple[TableRef, ...]:
    queries = (state.definition.query, state.definition.streaming)
    return tuple(table for query in queries if query for table in query.lookups)


def located(
    error: SelectError, select: str, *, select_at: tuple[int, int], hint: str = ""
) -> UserError:
    """Return an error of a SELECT with its line and column in the statement."""
    if error.offset is None:
        return UserError(
            error.message, code=error.code, detail=error.detail, hint=error.hint or hint
        )
    line, column = select_at
    before = select[: error.offset].split("\n")
    line += len(before) - 1
    column = column + error.offset if len(before) == 1 else len(before[-1]) + 1
    known = UserError(error.message, code=error.code, hint=error.hint or hint)
    return known.at(line=line, column=column)
