"""Fake tables in memory; they pass the contract suite of tables.

A test can also inject a fault: the response to a commit is lost, or a commit is applied late.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from threading import RLock
from typing import Any, assert_never
from uuid import uuid4

from penstock.errors import Code, ExternalError
from penstock.model.epoch import Attachment, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.tables.chain import chain_above, require_known_format
from penstock.tables.folder import staged_folder
from penstock.tables.partitions import check_keyed_partition_columns
from penstock.tables.table import (
    ChainCommit,
    SnapshotFile,
    TableDetail,
    duplicate_key,
    location_in_use,
    no_version,
    outcome_unknown,
    require_key_columns,
    require_partitions,
    require_predecessor,
    table_missing,
)

Row = Mapping[str, Any]


class Fault(Enum):
    """The fault that a test injects into a commit."""

    NONE = "none"
    LOST_RESPONSE = "lost response"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One version of a table's log; ``attachment`` is None for other writers."""

    attachment: Attachment | None
    files: tuple[DataFile, ...]
    # Whether the files replace all earlier files.
    rewrites: bool = False


@dataclass(slots=True, kw_only=True)
class _Table:
    """A table with its log and its copies; a test can remove old entries from the log."""

    location: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: str(uuid4()))
    entries: list[_Entry] = field(default_factory=lambda: [_Entry(attachment=None, files=())])
    first_logged: int = 0
    copies: dict[tuple[str, int], Attachment] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return len(self.entries) - 1

    def files(self, version: int) -> list[DataFile]:
        """Return the data files of a version."""
        found: list[DataFile] = []
        for entry in self.entries[: version + 1]:
            if entry.rewrites:
                found.clear()
            found += entry.files
        return found

    def of_job(self, job_id: str, *, first: int, last: int) -> Iterator[tuple[int, Attachment]]:
        """Yield the job's commits from the last version down to the first."""
        for version in range(last, first - 1, -1):
            attachment = self.entries[version].attachment
            if attachment is not None and attachment.job_id == job_id:
                yield version, attachment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A write that succeeds only as one specific version of a table's log."""

    table: _Table
    version: int
    entry: _Entry

    def apply(self) -> bool:
        """Append the entry if its version is still free; return whether it was appended."""
        free = len(self.table.entries) == self.version
        if free:
            self.table.entries.append(self.entry)
        return free


@dataclass(slots=True, kw_only=True)
class _Disk:
    """The state shared by the tables of one test and their handles, under one lock."""

    faults: Callable[[str, Attachment], Fault]
    lock: RLock = field(default_factory=RLock)
    table_by_location: dict[str, _Table] = field(default_factory=dict)
    rows_by_path: dict[str, Sequence[Row]] = field(default_factory=dict)
    late_writes: list[_Write] = field(default_factory=list)
    rejects_by_job: dict[str, dict[int, tuple[DataFile, ...]]] = field(default_factory=dict)

    def table_at(self, location: str) -> _Table:
        """Return the table at a location."""
        table = self.table_by_location.get(location)
        if table is None:
            raise table_missing(location)
        return table

    def rows_of(self, files: Iterable[DataFile]) -> list[Row]:
        """Return the rows of files; files without registered rows have none."""
        return [row for file in files for row in self.rows_by_path.get(file.path, ())]

    def store(self, rows: Sequence[Row]) -> DataFile:
        """Store rows as a new data file."""
        path = f"part-{uuid4().hex}.parquet"
        self.rows_by_path[path] = tuple(rows)
        return DataFile(
            path=path,
            size_bytes=0,
            rows=len(rows),
            modified_at=datetime(1970, 1, 1, tzinfo=UTC),
            statistics_json="{}",
        )


class MemoryTables:
    """Tables in memory; the test decides which commits fail."""

    def __init__(
        self, faults: Callable[[str, Attachment], Fault] = lambda *_: Fault.NONE
    ) -> None:
        self._disk = _Disk(faults=faults)

    def create(
        self,
        name: str,
        columns: tuple[Column, ...],
        *,
        location: str | None,
        comment: str,  # noqa: ARG002 - The fake does not store comments.
        partition_by: tuple[str, ...] = (),
    ) -> TableRef:
        with self._disk.lock:
            place = location or f"memory://{name}-{uuid4().hex[:8]}"
            if place in self._disk.table_by_location:
                raise location_in_use(place)
            table = _Table(location=place, columns=columns, partition_by=partition_by)
            self._disk.table_by_location[place] = table
            return TableRef(name=name, id=table.id, location=place)

    def open(self, location: str) -> "MemoryHandle":
        return MemoryHandle(self._disk, location)

    def normal_location(self, location: str) -> str:
        return location

    def delete(self, location: str) -> None:
        with self._disk.lock:
            self._disk.table_by_location.pop(location, None)

    def rejects_location(self, job_id: str) -> str:
        return f"memory://rejects/{job_id}"

    def open_rejects(self, job_id: str, columns: tuple[Column, ...]) -> "MemoryRejects":  # noqa: ARG002 - Rows are not stored.
        return MemoryRejects(self._disk, job_id)

    def delete_rejects(self, job_id: str) -> None:
        with self._disk.lock:
            self._disk.rejects_by_job.pop(job_id, None)

    def delete_staged(self, location: str, job_id: str) -> None:  # noqa: ARG002 - Job ids are unique.
        with self._disk.lock:
            folder = f"{staged_folder(job_id)}/"
            for path in [path for path in self._disk.rows_by_path if path.startswith(folder)]:
                del self._disk.rows_by_path[path]

    def task_access(self, location: str) -> Sealed:
        del location
        return Sealed()

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        with self._disk.lock:
            return tuple(path for path in paths if path not in self._disk.rows_by_path)

    def register_rows(self, path: str, rows: Iterable[Row]) -> None:
        """Store the rows of a data file; before that, the file is missing."""
        with self._disk.lock:
            self._disk.rows_by_path[path] = tuple(rows)

    def rows(self, location: str) -> list[Row]:
        """Return the rows of the newest version, in commit order."""
        with self._disk.lock:
            table = self._disk.table_at(location)
            return self._disk.rows_of(table.files(table.version))

    def foreign_commit(self, location: str, rows: Sequence[Row] = ()) -> None:
        """Add the commit of another writer."""
        with self._disk.lock:
            files = (self._disk.store(rows),) if rows else ()
            self._disk.table_at(location).entries.append(_Entry(attachment=None, files=files))

    def apply_late_writes(self) -> int:
        """Apply the pending late writes whose version is still free; return their number."""
        with self._disk.lock:
            pending, self._disk.late_writes = self._disk.late_writes, []
            return sum(write.apply() for write in pending)

    def copies(self, location: str, job_id: str) -> dict[int, Attachment]:
        """Return the copies of a job's attachments by commit number."""
        with self._disk.lock:
            copies = self._disk.table_at(location).copies
            return {number: copy for (job, number), copy in copies.items() if job == job_id}

    def clean_log(self, location: str, keep_from_version: int) -> None:
        """Remove the attachments below a version from the log; their copies remain."""
        with self._disk.lock:
            self._disk.table_at(location).first_logged = keep_from_version

    def recreate(self, location: str) -> None:
        """Replace a table by a new, empty one with another id."""
        with self._disk.lock:
            old = self._disk.table_at(location)
            self._disk.table_by_location[location] = _Table(
                location=location, columns=old.columns, partition_by=old.partition_by
            )


class MemoryRejects:
    """The fake rejects of a job."""

    def __init__(self, disk: _Disk, job_id: str) -> None:
        self._disk = disk
        self._job_id = job_id

    @property
    def files_by_number(self) -> dict[int, tuple[DataFile, ...]]:
        """The reject files by commit number."""
        with self._disk.lock:
            return dict(self._disk.rejects_by_job.get(self._job_id, {}))

    @property
    def newest_number(self) -> int:
        return max(self.files_by_number, default=0)

    def commit(self, number: int, files: Sequence[DataFile]) -> None:
        with self._disk.lock:
            if self.newest_number < number:
                self._disk.rejects_by_job.setdefault(self._job_id, {})[number] = tuple(files)


class MemoryHandle:
    """A snapshot of a fake table."""

    def __init__(self, disk: _Disk, location: str) -> None:
        self._disk = disk
        self._location = location
        self.refresh()

    @property
    def table_id(self) -> str:
        return self._table.id

    @property
    def version(self) -> int:
        return self._version

    def refresh(self) -> None:
        with self._disk.lock:
            self._table = self._disk.table_at(self._location)
            self._version = self._table.version

    def newest_number(self, job_id: str) -> int:
        with self._disk.lock:
            newest = next(self._table.of_job(job_id, first=0, last=self._version), None)
            return newest[1].number if newest else 0

    def chain_after(self, job_id: str, number: int) -> Sequence[ChainCommit]:
        with self._disk.lock:
            table = self._table
            logged = table.of_job(job_id, first=table.first_logged, last=self._version)
            chain = chain_above(
                number,
                newest=self.newest_number(job_id),
                logged=(
                    ChainCommit(attachment=attachment, table_version=version)
                    for version, attachment in logged
                ),
                copy_of=lambda missing: table.copies.get((job_id, missing)),
            )
            for commit in chain:
                require_known_format(commit.attachment.format, number=commit.attachment.number)
            return chain

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        with self._disk.lock:
            require_partitions(files, columns=self._table.partition_by)
            return self._write(attachment, _Entry(attachment=attachment, files=tuple(files)))

    def commit_keyed(
        self, attachment: Attachment, files: Sequence[DataFile], *, key: tuple[str, ...]
    ) -> int:
        with self._disk.lock:
            if not any(file.rows for file in files):
                return self.commit(attachment, ())
            table = self._table
            check_keyed_partition_columns(table.columns, table.partition_by)
            require_key_columns(key, columns=table.columns)
            staged = self._staged_rows(files, key)
            self._require_table(attachment)
            for version, commit in self._commits_since(attachment.job_id):
                if commit.attempt_id == attachment.attempt_id:
                    return version
            require_predecessor(self.newest_number(attachment.job_id), attachment=attachment)
            rows = self._disk.rows_of(table.files(table.version))
            file = self._disk.store(_merged(rows, staged, key))
            entry = _Entry(attachment=attachment, files=(file,), rewrites=True)
            return self._write(attachment, entry)

    def _staged_rows(self, files: Sequence[DataFile], key: tuple[str, ...]) -> dict[str, Row]:
        """Return the rows of staged files by key."""
        for file in files:
            if file.path not in self._disk.rows_by_path:
                raise ExternalError(
                    f'data file "{file.path}" could not be read', code=Code.STORAGE_ERR
                )
        row_by_key: dict[str, Row] = {}
        for row in self._disk.rows_of(files):
            text = _key_text(row, key)
            if text in row_by_key:
                raise duplicate_key({name: row[name] for name in key})
            row_by_key[text] = row
        return row_by_key

    def _commits_since(self, job_id: str) -> Iterator[tuple[int, Attachment]]:
        """Yield the job's commits after the snapshot, newest first."""
        last = self._table.version
        return self._table.of_job(job_id, first=self._version + 1, last=last)

    def _require_table(self, attachment: Attachment) -> None:
        if self._disk.table_by_location.get(self._location) is not self._table:
            raise outcome_unknown(attachment, "The table does not exist")

    def _write(self, attachment: Attachment, entry: _Entry) -> int:
        """Append an entry to the log, unless the test injects a fault."""
        self._require_table(attachment)
        if next(self._commits_since(attachment.job_id), None) is not None:
            raise outcome_unknown(attachment, "Another commit of the job was first")
        table = self._table
        write = _Write(table=table, version=len(table.entries), entry=entry)
        match self._disk.faults(attachment.job_id, attachment):
            case Fault.NONE:
                write.apply()
                return write.version
            case Fault.LOST_RESPONSE:
                write.apply()
                raise outcome_unknown(attachment, "The response was lost")
            case Fault.LATE:
                self._disk.late_writes.append(write)
                raise outcome_unknown(attachment, "There was no response")
            case fault:
                assert_never(fault)

    def write_copy(self, attachment: Attachment) -> None:
        with self._disk.lock:
            key = (attachment.job_id, attachment.number)
            self._disk.table_at(self._location).copies.setdefault(key, attachment)

    def columns(self) -> tuple[Column, ...]:
        return self._table.columns

    def partition_columns(self) -> tuple[str, ...]:
        return self._table.partition_by

    def detail(self) -> TableDetail:
        files = self._data_files()
        return TableDetail(
            version=self._version,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            rows=sum(file.rows for file in files),
        )

    def files(self) -> tuple[SnapshotFile, ...]:
        return tuple(
            SnapshotFile(
                path=file.path,
                size_bytes=file.size_bytes,
                partition_values=file.partition_values,
                statistics_json=file.statistics_json,
            )
            for file in self._data_files()
        )

    def _data_files(self) -> list[DataFile]:
        with self._disk.lock:
            return self._table.files(self._version)

    def at(self, version: int) -> "MemoryHandle":
        if not self._table.first_logged <= version <= self._version:
            raise no_version(self._location, version, newest=self._version)
        handle = MemoryHandle(self._disk, self._location)
        handle._version = version
        return handle


def _merged(rows: Sequence[Row], staged: Mapping[str, Row], key: tuple[str, ...]) -> list[Row]:
    keys = [_key_text(row, key) for row in rows]
    found = set(keys)
    added = (row for text, row in staged.items() if text not in found)
    return [*map(staged.get, keys, rows), *added]


def _key_text(row: Row, key: tuple[str, ...]) -> str:
    """Return a text that is equal for equal keys; NaN equals itself, -0.0 equals 0.0."""
    values = (row[name] for name in key)
    return repr([value + 0.0 if isinstance(value, float) else value for value in values])
