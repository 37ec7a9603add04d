"""The file index: which files a job has loaded, and their ETags.

Invariant: the index contains exactly the files that the job's commits loaded, until a later
move or pruning removes them. A move removes the files that the job must load again.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from penstock.catalog import relations
from penstock.catalog.database import Database
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.split import After

# SQLite limits the number of values in a statement.
_KEYS_AT_ONCE = 10_000
_files = relations.files
_DELETE_KEY = delete(_files).where(
    _files.c.job_id == bindparam("job"), _files.c.key == bindparam("file")
)
_DELETE_ALL = delete(_files).where(_files.c.job_id == bindparam("job"))
_DELETE_ABOVE = _DELETE_ALL.where(_files.c.key > bindparam("floor"))
_DELETE_OLD = _DELETE_ALL.where(
    _files.c.modified_at < bindparam("before"),
    _files.c.key.not_in(bindparam("keep", expanding=True)),
)
_AMONG = select(_files.c.key, _files.c.etag).where(
    _files.c.job_id == bindparam("job_id"),
    _files.c.key.in_(bindparam("keys", expanding=True)),
)
_NEWEST_OF_ALL = select(func.max(_files.c.key)).where(_files.c.job_id == bindparam("job_id"))
_NEWEST = _NEWEST_OF_ALL.where(
    _files.c.key >= bindparam("prefix"), _files.c.key < bindparam("after")
)
_windows = relations.file_windows
_PRUNED = select(_windows.c.pruned_before).where(_windows.c.job_id == bindparam("job_id"))


def apply_commit(connection: Connection, job_id: str, attachment: Attachment) -> None:
    """Apply a commit of the job to the index."""
    if attachment.kind is CommitKind.EPOCH:
        _add_files(connection, job_id, attachment)
    elif attachment.kind is CommitKind.MOVE:
        for split in attachment.progress:
            if isinstance(split.floor, After):
                above = {"job": job_id, "floor": split.floor.value}
                connection.execute(_DELETE_ABOVE, above)
            else:
                connection.execute(_DELETE_ALL, {"job": job_id})


def _add_files(connection: Connection, job_id: str, attachment: Attachment) -> None:
    file_by_key = {file.key: file for file in attachment.items}
    if not file_by_key:
        return
    connection.execute(_DELETE_KEY, [{"job": job_id, "file": key} for key in file_by_key])
    rows = [
        {
            "job_id": job_id,
            "key": file.key,
            "etag": file.etag,
            "number": attachment.number,
            "modified_at": file.modified_at,
        }
        for file in file_by_key.values()
    ]
    connection.execute(insert(_files), rows)


def _newest(connection: Connection, job_id: str, prefix: str) -> str:
    if not prefix:
        return connection.scalar(_NEWEST_OF_ALL, {"job_id": job_id}) or ""
    # A prefix ends with a slash. In byte order, the character after a slash is the digit 0.
    bounds = {"job_id": job_id, "prefix": prefix, "after": f"{prefix[:-1]}0"}
    return connection.scalar(_NEWEST, bounds) or ""


class JobFiles:
    """The files that one job has loaded; see ``ItemIndex`` of the sources."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id

    def known(self, keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._database.read() as connection:
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = list(keys[start : start + _KEYS_AT_ONCE])
                rows = connection.execute(_AMONG, {"job_id": self._job_id, "keys": some})
                found.update((row.key, row.etag) for row in rows)
        return found

    def newest(self, prefix: str) -> str:
        with self._database.read() as connection:
            return _newest(connection, self._job_id, prefix)

    @property
    def pruned_before(self) -> datetime | None:
        with self._database.read() as connection:
            return connection.scalar(_PRUNED, {"job_id": self._job_id})

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        with self._database.write() as connection:
            # Read in this transaction: another owner may have loaded files since the poll.
            keep = [_newest(connection, self._job_id, prefix) for prefix in prefixes]
            earlier = connection.scalar(_PRUNED, {"job_id": self._job_id})
            window = {"job_id": self._job_id, "pruned_before": before}
            if earlier is None:
                connection.execute(insert(_windows), window)
            elif earlier < before:
                of_job = _windows.c.job_id == self._job_id
                connection.execute(update(_windows).where(of_job), window)
            old = {"job": self._job_id, "before": before, "keep": keep}
            connection.execute(_DELETE_OLD, old)

    def count(self) -> int:
        """Return the number of files in the index."""
        with self._database.read() as connection:
            of_job = _files.c.job_id == self._job_id
            return connection.scalar(select(func.count()).where(of_job)) or 0
