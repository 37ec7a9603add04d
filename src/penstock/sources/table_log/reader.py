"""Read data files of a table inside a task."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ExternalError
from penstock.model.codec import from_text, to_text
from penstock.model.secrets import Sealed
from penstock.model.split import Note, ReadCounts, SplitRead
from penstock.sources.registry import source_options
from penstock.sources.source import Place, ReadTask, RowBlock, TaskReader
from penstock.sources.table_log.kind import (
    FileResult,
    FileWork,
    TableLogOptions,
    TableStream,
    cannot_resume,
    parse_position,
    parse_streams,
)
from penstock.tables.folder import TableFolder, open_sealed_folder
from penstock.tables.scan import read_file
from penstock.tables.table import SnapshotFile

_MICROSECONDS_PER_MS = 1_000


class TableLogReader(TaskReader):
    """Reads the files of one task, one after the other."""

    def __init__(self, task: ReadTask) -> None:
        options: TableLogOptions = source_options(task.source)
        self._task = task
        self._stream_by_split = {s.split: s for s in parse_streams(options.streams)}
        self._folder_by_location: dict[str, TableFolder] = {}
        self.notes: list[Note] = []

    @property
    def requests(self) -> int:
        return sum(folder.store.requests for folder in self._folder_by_location.values())

    def blocks(self) -> Iterator[RowBlock]:
        for read in self._task.reads:
            yield from self._rows(read)

    def _rows(self, read: SplitRead) -> Iterator[RowBlock]:
        stream = self._stream_by_split[read.split]
        work = from_text(FileWork, read.work)
        sent = self.requests
        seen = _Seen(
            event_time=stream.event_time,
            watermark_ms=work.watermark_ms,
            high_max_ms=work.high_max_ms,
        )
        for batch in self._batches(read, work, stream):
            place = partial(_place, work.path, seen.rows)
            seen.add(batch)
            yield RowBlock(batch=batch.select(list(self._task.needed)), place=place)
        counts = ReadCounts(
            rows_read=seen.rows,
            rows_parsed=seen.rows,
            records=seen.rows,
            rows_late=seen.late_rows,
            files=1,
            requests=self.requests - sent,
        )
        end = read.end or read.begin
        self.notes.append(
            Note(read=read.id, end=end, counts=counts, result=to_text(seen.result))
        )

    def _batches(
        self, read: SplitRead, work: FileWork, stream: TableStream
    ) -> Iterator[pa.RecordBatch]:
        """Yield the needed columns and the event time of a file."""
        folder = self._folder(stream.location, self._task.access)
        wanted = {*self._task.needed, stream.event_time}
        columns = tuple(column for column in stream.columns if column.name in wanted)
        file = SnapshotFile(
            path=work.path,
            size_bytes=work.size_bytes,
            partition_values=work.partition_values,
            statistics_json="{}",
        )
        try:
            yield from read_file(folder, file, columns=columns)
        except ExternalError:
            if folder.store.head(folder.key(work.path)) is not None:
                raise
            version = parse_position(read.begin).version
            reason = f'Its data file "{work.path}" does not exist any more.'
            raise cannot_resume(stream.table, version, reason=reason) from None

    def _folder(self, location: str, access: Sealed) -> TableFolder:
        if location not in self._folder_by_location:
            self._folder_by_location[location] = open_sealed_folder(location, access)
        return self._folder_by_location[location]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The rows of a file that were read so far; event times in microseconds since 1970."""

    event_time: str | None
    watermark_ms: int | None
    high_max_ms: int | None
    rows: int = 0
    low: int | None = None
    high: int | None = None
    late_rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch, and extend the bounds of the event time."""
        self.rows += batch.num_rows
        if self.event_time is None:
            return
        times = _microseconds(batch.column(self.event_time))
        counted = times
        if self.high_max_ms is not None:
            counted = times.filter(
                pc.less_equal(times, pa.scalar(self.high_max_ms * _MICROSECONDS_PER_MS))
            )
        lows = [low for low in (self.low, pc.min(times).as_py()) if low is not None]
        highs = [high for high in (self.high, pc.max(counted).as_py()) if high is not None]
        self.low, self.high = min(lows, default=None), max(highs, default=None)
        if self.watermark_ms is not None:
            late = pc.less_equal(times, pa.scalar(self.watermark_ms * _MICROSECONDS_PER_MS))
            self.late_rows += pc.sum(late).as_py() or 0

    @property
    def result(self) -> FileResult:
        """The result of the read; bounds are rounded down to milliseconds."""
        return FileResult(
            rows=self.rows,
            low_ms=None if self.low is None else self.low // _MICROSECONDS_PER_MS,
            high_ms=None if self.high is None else self.high // _MICROSECONDS_PER_MS,
            late_rows=None if self.watermark_ms is None else self.late_rows,
        )


def _microseconds(times: Any) -> Any:  # noqa: ANN401 - Arrow's classes are generic.
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us"))
    return times.cast(pa.int64())


def _place(path: str, first: int, row: int) -> Place:
    return (path, first + row)
