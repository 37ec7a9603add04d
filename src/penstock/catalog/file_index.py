"""The file index: which files a job has loaded, and in which state of theirs.

Invariant: the index holds exactly the files that the job's commits loaded and that no later
move of the position has asked for again.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from penstock.catalog import relations
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.position import After, Horizon, Position

_files = relations.files
_INSERT = insert(_files)
_DELETE_KEY = delete(_files).where(
    _files.c.job_id == bindparam("job"), _files.c.key == bindparam("file")
)
_DELETE_ALL = delete(_files).where(_files.c.job_id == bindparam("job"))
_DELETE_ABOVE = _DELETE_ALL.where(_files.c.key > bindparam("floor"))
_AMONG = select(_files.c.key, _files.c.etag).where(
    _files.c.job_id == bindparam("job_id"),
    _files.c.key.in_(bindparam("keys", expanding=True)),
)
_COUNT = select(func.count()).where(_files.c.job_id == bindparam("job_id"))


def follow(connection: Connection, job_id: str, attachment: Attachment) -> None:
    """Bring the index to where a commit has brought the job."""
    if attachment.kind is CommitKind.EPOCH:
        _remember(connection, job_id, attachment)
    elif attachment.kind is CommitKind.MOVE:
        for split in attachment.progress:
            _forget_above(connection, job_id, split.floor)


def _remember(connection: Connection, job_id: str, attachment: Attachment) -> None:
    etag_by_key = {file.key: file.etag for file in attachment.files}
    if not etag_by_key:
        return
    connection.execute(_DELETE_KEY, [{"job": job_id, "file": key} for key in etag_by_key])
    connection.execute(
        _INSERT,
        [
            {"job_id": job_id, "key": key, "etag": etag, "number": attachment.number}
            for key, etag in etag_by_key.items()
        ],
    )


def _forget_above(connection: Connection, job_id: str, floor: Position) -> None:
    match floor:
        case Horizon():
            connection.execute(_DELETE_ALL, {"job": job_id})
        case After(value=value):
            connection.execute(_DELETE_ABOVE, {"job": job_id, "floor": value})


def known(connection: Connection, job_id: str, keys: Sequence[str]) -> dict[str, str]:
    """Answer ETags by key of those files among the given ones that were loaded."""
    rows = connection.execute(_AMONG, {"job_id": job_id, "keys": list(keys)})
    return {row.key: row.etag for row in rows}


def count(connection: Connection, job_id: str) -> int:
    """Count the files that the index holds for a job."""
    return connection.scalar(_COUNT, {"job_id": job_id}) or 0
