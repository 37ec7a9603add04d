"""Read parts of files, one behind the other, with a note for each."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

import pyarrow as pa

from penstock.epochs.output import Rejects, RowPlace, Stage
from penstock.epochs.task_plan import TaskPlan
from penstock.model.epoch import FilePart, FileRead, Note
from penstock.sources.files.options import FilesOptions
from penstock.sources.files.reader import lines_before, read_records
from penstock.sources.formats.blocks import RecordBlock
from penstock.storage.store import open_sealed

# So many files are on their way while one is being read.
_READS_AHEAD = 8


class Place:
    """Where the rows of a part stand in their file."""

    def __init__(self, read: FileRead, stream: BufferedIOBase, *, source: FilesOptions) -> None:
        self._read = read
        self._source = source
        self._stream = stream
        self._earlier: int | None = None

    def of_line(self, own_line: int) -> RowPlace:
        """Answer where a line stands, counted from 1; earlier ones are counted once."""
        if self._earlier is None:
            at = self._stream.tell()
            self._earlier = lines_before(self._stream, self._read, source=self._source)
            self._stream.seek(at)
        return RowPlace(file=self._read.file.key, line=self._earlier + own_line + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A block of rows, and where they came from."""

    block: RecordBlock
    place: Place

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows."""
        return self.block.batch

    def place_of(self, row: int) -> RowPlace:
        """Answer file and line of a row."""
        return self.place.of_line(self.block.first_line + self.block.line_of(row))


class FileShare:
    """Reads the parts of one task."""

    def __init__(self, plan: TaskPlan, source: FilesOptions, rejects: Rejects) -> None:
        self._plan = plan
        self._source = source
        self._rejects = rejects
        self._store, _ = open_sealed(source.uri, plan.source_access)
        self._sent = 0
        self.notes: list[Note] = []

    def blocks(self) -> Iterator[Arrived]:
        """Yield the rows of all parts; a part's note is there once its last row was taken."""
        reads = self._plan.reads
        for number, read in enumerate(reads):
            for following in reads[number + 1 : number + 1 + _READS_AHEAD]:
                self._store.prepare(following.file.key, etag=following.file.etag)
            yield from self._part(read)

    @property
    def requests(self) -> int:
        """How often the source was asked so far."""
        return self._store.requests

    def _newly_sent(self) -> int:
        """Count the requests since the last note, those for later parts too."""
        before, self._sent = self._sent, self._store.requests
        return self._sent - before

    def _part(self, read: FileRead) -> Iterator[Arrived]:
        plan = self._plan
        rows = parsed = skipped = rejected = 0
        with self._store.open(read.file.key, etag=read.file.etag) as stream:
            place = Place(read, stream, source=self._source)
            for block in read_records(
                stream,
                read,
                source=self._source,
                columns=plan.source_columns,
                needed=plan.needed,
            ):
                for bad in block.bad:
                    self._rejects.add(
                        stage=Stage.READER,
                        place=place.of_line(bad.line),
                        error=bad.error,
                        raw=bad.raw,
                    )
                rows += block.lines
                parsed += block.rows
                skipped += block.blank
                rejected += len(block.bad)
                if block.rows:
                    yield Arrived(block=block, place=place)
        self.notes.append(
            Note(
                part=FilePart(
                    key=read.file.key, etag=read.file.etag, start=read.start, end=read.end
                ),
                rows_read=rows,
                rows_parsed=parsed,
                rows_skipped=skipped,
                rows_rejected=rejected,
                requests=self._newly_sent(),
            )
        )
