"""Why the database did not do what was asked, in our words."""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy.exc import DBAPIError, IntegrityError

from penstock.errors import Code, ExternalError, InvariantError, PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a catalog lives; without a path it lives in memory."""

    path: Path | None
    lock_wait: timedelta

    def __str__(self) -> str:
        return "in memory" if self.path is None else f'"{self.path}"'


def explain(error: Exception, place: Place) -> PenstockError:
    """Turn an error of the database into one that says who must act."""
    if isinstance(error, IntegrityError):
        return InvariantError(
            f"catalog {place} refused a change that breaks its rules",
            detail=f"The database said: {_said(error)}.",
        )
    known = _EXPLANATIONS.get(_primary_code(error))
    if known is not None:
        return known(place)
    message = f"catalog {place} failed"
    return ExternalError(
        message, code=Code.CATALOG_ERR, detail=f"The database said: {_said(error)}."
    )


def stayed_locked(place: Place) -> ExternalError:
    """Tell that the write lock did not come free in time."""
    return ExternalError(
        f"catalog {place} stayed locked for longer than {place.lock_wait.total_seconds():g}s",
        code=Code.CATALOG_ERR,
        hint="Another process is stopped in the middle of a write; let it go on or end it.",
    )


def _read_only(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} is read-only",
        code=Code.CATALOG_ERR,
        hint="Let this user write the folder, the file and those beside it (-wal, -shm).",
    )


def _full(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} has no room left on its disk",
        code=Code.CATALOG_ERR,
        hint="Free some space; nothing was stored, and the same can be asked again.",
    )


def _not_a_database(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} is not a sound SQLite database",
        code=Code.CATALOG_ERR,
        hint="Restore the file from a copy, or choose another home.",
    )


def _cannot_open(place: Place) -> ExternalError:
    folder = (place.path or Path()).absolute().parent
    if not folder.is_dir():
        reason, hint = "its folder does not exist", f'Create the folder "{folder}"'
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason, hint = "this user may not write its folder", f'Allow writing to "{folder}"'
    else:
        reason, hint = "it is not a file this user may read and write", f'Look at "{folder}"'
    return ExternalError(
        f"catalog {place} cannot be opened: {reason}",
        code=Code.CATALOG_ERR,
        hint=f"{hint}, or choose another home.",
    )


_EXPLANATIONS: dict[int, Callable[[Place], ExternalError]] = {
    sqlite3.SQLITE_READONLY: _read_only,
    sqlite3.SQLITE_FULL: _full,
    sqlite3.SQLITE_BUSY: stayed_locked,
    sqlite3.SQLITE_LOCKED: stayed_locked,
    sqlite3.SQLITE_NOTADB: _not_a_database,
    sqlite3.SQLITE_CORRUPT: _not_a_database,
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
}


def _primary_code(error: Exception) -> int:
    code: int = getattr(_cause(error), "sqlite_errorcode", 0)
    # The low byte tells the kind; the rest of an extended code only refines it.
    return code & 0xFF


def _said(error: Exception) -> str:
    # The wrapper's own text would repeat the statement and its values.
    return str(_cause(error)).rstrip(".")


def _cause(error: Exception) -> BaseException:
    return error.orig or error if isinstance(error, DBAPIError) else error
