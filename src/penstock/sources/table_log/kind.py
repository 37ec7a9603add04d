"""Delta tables as a source kind: options, positions, start, SHOW.

A source has one split for each streamed table of a query. A split is read in two phases. The
first phase reads the files of a snapshot, ordered by event time. The second phase reads the
files of each later commit, in the order of the log. A position is ``SNAPSHOT v.k`` or
``LOG v.k``: phase, version, and index of the next file. A file is always read as a whole.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import Code, InvariantError, UserError
from penstock.model.codec import encode, from_data, from_text, to_text
from penstock.model.options import group, option
from penstock.model.schema import Column, Primitive
from penstock.model.split import At, Position, Progress, SplitProgress, SplitRead
from penstock.sources.source import (
    Place,
    ReadTask,
    ShowRequest,
    Source,
    SourceKind,
    SourceServices,
    SourceView,
    StartRequest,
    TableOpener,
    TaskReader,
)

if TYPE_CHECKING:
    from penstock.tables.table import SnapshotFile, TableHandle

STARTING = "starting"
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_POSITION = re.compile(r"(SNAPSHOT|LOG) (\d+)\.(\d+)")
_STARTING = re.compile(
    r"\s*(?:(earliest)|(latest)|version\s+(\d{1,18})|timestamp\s+'([^']+)')\s*", re.IGNORECASE
)


class Rewrites(StrEnum):
    """The reaction to a commit that deletes or updates rows."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStream:
    """One streamed table of a query."""

    split: str
    table: str
    id: str
    location: str
    # The columns that the query uses, with their types at CREATE.
    columns: tuple[Column, ...]
    event_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLogStart:
    """Start options; resolved once, at CREATE, and stored as given for SHOW CREATE."""

    starting: str = option(
        "First rows to read: earliest (all rows of the table), latest, version <n> or "
        "timestamp '<time>'.",
        default="earliest",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLogOptions:
    """Options of the streamed tables of one query; CREATE writes them."""

    streams: str = option("The streamed tables as JSON: split, table, id, location, columns.")
    rewrites: Rewrites = option(
        "Reaction to a commit that deletes or updates rows: fail, or skip the whole commit.",
        default=Rewrites.FAIL,
    )
    start: TableLogStart = group(TableLogStart)


def streams_text(streams: Iterable[TableStream]) -> str:
    """Write streams as the text of the option."""
    return json.dumps([encode(stream) for stream in streams], ensure_ascii=False)


@lru_cache(maxsize=256)
def parse_streams(text: str) -> tuple[TableStream, ...]:
    """Read streams from the text of the option."""
    return tuple(from_data(TableStream, data) for data in json.loads(text))


class Phase(StrEnum):
    """The phase of a position; every snapshot is read before the log."""

    SNAPSHOT = "SNAPSHOT"
    LOG = "LOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """A phase, a version, and the index of the next file in this version."""

    phase: Phase
    version: int
    index: int = 0

    @property
    def order(self) -> tuple[bool, int, int]:
        """The sort key of a position.

        Positions in a snapshot sort before all positions in the log. So a position in a
        snapshot passes no boundary. Its unread files may contain rows of any earlier version.
        """
        return self.phase is Phase.LOG, self.version, self.index

    @property
    def stored(self) -> At:
        """The stored form."""
        return At(value=f"{self.phase} {self.version}.{self.index}")


def parse_position(position: Position | None) -> LogPosition:
    """Read the stored form of a position."""
    found = _POSITION.fullmatch(position.value) if isinstance(position, At) else None
    if found is None:
        raise InvariantError(f"position of a table log must have a version, not {position}")
    return LogPosition(phase=Phase(found[1]), version=int(found[2]), index=int(found[3]))


def log_position(version: int) -> LogPosition:
    """Return the position before the first file of a commit."""
    return LogPosition(phase=Phase.LOG, version=version)


def position_after(position: LogPosition, *, files: int) -> LogPosition:
    """Return the position after a file; ``files`` is the number of files of the version."""
    if position.index + 1 < files:
        return replace(position, index=position.index + 1)
    return log_position(position.version + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWork:
    """The work of one read: a data file with the statistics of the log."""

    path: str
    size_bytes: int
    partition_values: tuple[tuple[str, str | None], ...]
    # From the statistics of the file; None if they lack the value. Times are in milliseconds
    # since 1970.
    rows: int | None
    low_ms: int | None
    high_ms: int | None
    # Rows with an event time up to this time are counted as late.
    watermark_ms: int | None = None
    # Later event times are ignored in the highest event time. None means no limit.
    high_max_ms: int | None = None

    @property
    def counted_high_ms(self) -> int | None:
        """The highest event time that counts; None if it is known only after the read."""
        high, limit = self.high_ms, self.high_max_ms
        return None if high is None or (limit is not None and high > limit) else high


def untimed(reads: Sequence[SplitRead]) -> frozenset[str]:
    """Return the ids of the reads whose highest event time is known only after the read."""
    works = ((read.id, from_text(FileWork, read.work)) for read in reads)
    return frozenset(name for name, work in works if work.counted_high_ms is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """The result of one read: rows, bounds of the event time, and late rows.

    The upper bound is the highest event time that counts.
    """

    rows: int
    low_ms: int | None
    high_ms: int | None
    # None if the work has no watermark.
    late_rows: int | None = None


def file_work(file: "SnapshotFile", event_time: str | None) -> FileWork:
    """Return the work of reading a data file.

    The highest event time may be rounded up to the next millisecond, so 1 ms is subtracted.
    """
    statistics = json.loads(file.statistics_json)
    low = high = dict(file.partition_values).get(event_time or "")
    if low is None:
        low = statistics.get("minValues", {}).get(event_time)
        high = statistics.get("maxValues", {}).get(event_time)
    lowest, highest = _since_1970(low), _since_1970(high)
    return FileWork(
        path=file.path,
        size_bytes=file.size_bytes,
        partition_values=file.partition_values,
        rows=statistics.get("numRecords"),
        low_ms=None if lowest is None else lowest // _MILLISECOND,
        # Whole milliseconds become 1 ms less. A bound with microseconds is only rounded down.
        high_ms=None if highest is None else -(-highest // _MILLISECOND) - 1,
    )


def _since_1970(bound: object) -> timedelta | None:
    """Return a bound as the time since 1970; None if it is missing or has another form."""
    try:
        return _moment(str(bound)) - _UNIX_EPOCH
    except ValueError:
        return None


def event_order(work: FileWork) -> tuple[bool, int]:
    """Return the key that sorts files by event time; files without statistics are first.

    The watermark cannot advance until such a file is read.
    """
    return work.low_ms is not None, work.low_ms or 0


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def with_times(read: SplitRead, *, watermark_ms: int, high_max_ms: int) -> SplitRead:
    """Return a read that counts late rows, and finds the highest event time up to a limit."""
    work = from_data(FileWork, json.loads(read.work))
    work = replace(work, watermark_ms=watermark_ms, high_max_ms=high_max_ms)
    return replace(read, work=to_text(work))


def cannot_resume(table: str, version: int, *, reason: str) -> UserError:
    """Return the error for rows that are no longer available."""
    return UserError(
        f'table "{table}" cannot be read from version {version}',
        code=Code.CANNOT_RESUME_ERR,
        detail=reason,
        hint="Restore the table from a backup, or create the streaming table again.",
    )


def id_error(stream: TableStream, table_id: str) -> UserError | None:
    """Return an error if another table is at the location of a stream."""
    if table_id == stream.id:
        return None
    return UserError(
        f'table "{stream.table}" is not the table that the query was created for',
        code=Code.TABLE_CHANGED_ERR,
        detail=f"Table id {table_id} is at {stream.location}, expected {stream.id}.",
        hint="Restore the table, or create the streaming table again.",
    )


def _start(request: StartRequest) -> Progress | None:
    if request.before is not None and STARTING not in request.given:
        return None
    if request.tables is None:
        raise InvariantError("the start of a table log requires the tables")
    starting = request.given.get(STARTING, TableLogStart().starting)
    return tuple(
        _start_of(stream, starting, request.tables)
        for stream in parse_streams(request.options.streams)
    )


def _start_of(stream: TableStream, starting: str, tables: TableOpener) -> SplitProgress:
    handle: TableHandle = tables.open(stream.location)
    error = id_error(stream, handle.table_id)
    if error is not None:
        raise error
    # Raises an error if the table has a feature that Penstock cannot read.
    files = handle.files()
    found = _STARTING.fullmatch(starting)
    match found.groups() if found else ():
        case [str(), _, _, _] if files:
            position = LogPosition(phase=Phase.SNAPSHOT, version=handle.version)
        case [str(), _, _, _] | [_, str(), _, _]:
            position = log_position(handle.version + 1)
        case [_, _, str(version), _]:
            position = log_position(_existing(int(version), stream, handle, tables))
        case [_, _, _, str(moment)]:
            position = log_position(_first_since(moment, stream, handle, tables))
        case _:
            raise _bad_start(starting)
    return SplitProgress(
        split=stream.split,
        floor=position.stored,
        position=position.stored,
        identity=stream.id,
    )


def _bad_start(starting: str) -> UserError:
    return UserError(
        f"option \"{STARTING}\" must be earliest, latest, version <n> or timestamp '<time>', "
        f'not "{starting}"',
        hint="For example, write version 12, or timestamp '2026-01-31 10:00:00'.",
    )


def _existing(
    version: int, stream: TableStream, handle: "TableHandle", tables: TableOpener
) -> int:
    """Return a version; raise UserError if it is neither in the log nor the next one."""
    from penstock.tables.log import read_commit
    from penstock.tables.table import no_version

    if version == handle.version + 1:
        return version
    if read_commit(tables.folder(stream.location), version) is None:
        raise no_version(stream.location, version, newest=handle.version)
    return version


def _first_since(
    moment: str, stream: TableStream, handle: "TableHandle", tables: TableOpener
) -> int:
    """Return the first version at or after a time; the next version if there is none."""
    from penstock.tables.log import read_commit
    from penstock.tables.table import no_version

    try:
        since = _moment(moment)
    except ValueError as error:
        raise _bad_start(f"timestamp '{moment}'") from error
    folder = tables.folder(stream.location)
    for version in range(handle.version, -1, -1):
        commit = read_commit(folder, version)
        if commit is None:
            raise no_version(stream.location, version, newest=handle.version)
        if commit.committed_at < since:
            return version + 1
    return 0


def _open(services: SourceServices) -> Source:
    from penstock.sources.table_log.source import TableLogSource

    return TableLogSource(services)


def _reader(task: ReadTask) -> TaskReader:
    from penstock.sources.table_log.reader import TableLogReader

    return TableLogReader(task)


def _show(request: ShowRequest) -> SourceView:
    return SourceView(offset=json.dumps(_positions(request.state.progress)))


def _positions(progress: Progress) -> dict[str, str]:
    return {split.split: parse_position(split.position).stored.value for split in progress}


def _position(progress: Progress) -> str:
    found = _positions(progress)
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{split} {position}" for split, position in found.items())


def _span(start: Progress, end: Progress) -> str:
    return json.dumps({"start": _positions(start), "end": _positions(end)})


def _place_text(place: Place) -> str:
    file, row = place
    if row is None:
        return "a row of the query"
    return f"file {file}, row {row}"


TABLE_LOG = SourceKind(
    name="TABLE_LOG",
    functions=("TABLE_LOG",),
    job_kinds=("STREAMING_TABLE",),
    split_noun="table",
    waiting_noun="file",
    read_noun="input row",
    measures=("files", "rows", "bytes", "time"),
    options=TableLogOptions,
    start_options=TableLogStart,
    fixed=("streams",),
    place_columns=(
        Column(name="file", type=Primitive.STRING),
        Column(name="row", type=Primitive.BIGINT),
    ),
    place=lambda options: ", ".join(s.table for s in parse_streams(options.streams)),
    place_text=_place_text,
    position=_position,
    span=_span,
    define=lambda draft: tuple(
        column for stream in parse_streams(draft.options.streams) for column in stream.columns
    ),
    start=_start,
    open=_open,
    reader=_reader,
    show=_show,
)
