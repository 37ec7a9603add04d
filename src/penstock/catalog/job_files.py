"""The file index of one job, as its source asks it."""

from collections.abc import Sequence
from datetime import datetime

from penstock.catalog import file_index
from penstock.catalog.database import Database


class JobFiles:
    """Which files the job has loaded."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id

    def known(self, keys: Sequence[str]) -> dict[str, str]:
        """Answer ETags by key of those files among the given ones that were loaded."""
        with self._database.read() as connection:
            return file_index.known(connection, self._job_id, keys)

    def newest(self, prefix: str) -> str:
        """Answer the largest loaded key below a prefix; empty if there is none."""
        with self._database.read() as connection:
            return file_index.newest(connection, self._job_id, prefix)

    @property
    def pruned_before(self) -> datetime | None:
        """The time before which files were written that the index has forgotten."""
        with self._database.read() as connection:
            return file_index.pruned_before(connection, self._job_id)

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        """Forget the files that were written before a time, except the newest of prefixes."""
        with self._database.write() as connection:
            file_index.prune(connection, self._job_id, before, prefixes=prefixes)

    def count(self) -> int:
        """Count the files that are known as loaded."""
        with self._database.read() as connection:
            return file_index.count(connection, self._job_id)
