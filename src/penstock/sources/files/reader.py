"""Divide files among tasks and read their parts in the job's format."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedIOBase
from urllib.parse import unquote

import pyarrow as pa

from penstock.arrow.casts import CastError, cast_array
from penstock.arrow.types import AnyArray, arrow_schema, arrow_type
from penstock.model.codec import from_text
from penstock.model.epoch import LoadedItem
from penstock.model.schema import Column
from penstock.model.split import After, Note, ReadCounts, SplitRead
from penstock.sources.files.kind import (
    METADATA_COLUMNS,
    RESCUED,
    CompressType,
    FileFormat,
    FilesOptions,
    MissingColumns,
)
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError
from penstock.sources.formats.compression import compression_of, decompressed
from penstock.sources.formats.csv_reader import read_csv
from penstock.sources.formats.csv_text import csv_layout, csv_splittable
from penstock.sources.formats.json_reader import json_layout, json_reading, read_json
from penstock.sources.formats.lines import count_lines_before
from penstock.sources.formats.parquet_footer import read_row_groups
from penstock.sources.formats.parquet_reader import read_parquet
from penstock.sources.registry import source_options
from penstock.sources.source import BadRow, Place, ReadTask, RowBlock
from penstock.storage.store import open_sealed, read_ahead

_NULL = "__HIVE_DEFAULT_PARTITION__"
# So many files are requested ahead while one is read.
_READS_AHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """What one task reads of one file: the lines that begin in [start, end)."""

    item: LoadedItem
    start: int
    end: int


class FilesReader:
    """Reads parts of files, one after the other, with a note for each."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._options: FilesOptions = source_options(task.source)
        self._store, _ = open_sealed(self._options.uri, task.access)
        self._sent = 0
        self.notes: list[Note] = []

    @property
    def requests(self) -> int:
        """How many requests were sent to the store."""
        return self._store.requests

    def close(self) -> None:
        """Do nothing: files are closed as they are read."""

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows of all parts."""
        parts = [from_text(FilePart, read.work) for read in self._task.reads]
        for number, (read, part) in enumerate(zip(self._task.reads, parts, strict=True)):
            for following in parts[number + 1 : number + 1 + _READS_AHEAD]:
                self._store.prepare(following.item.key, etag=following.item.etag)
            yield from self._part(read, part)

    def _part(self, read: SplitRead, part: FilePart) -> Iterator[RowBlock]:
        rows = parsed = skipped = rejected = 0
        with self._store.open(part.item.key, etag=part.item.etag) as stream:
            place = _Lines(part, stream, source=self._options)
            for block in read_records(
                stream,
                part,
                source=self._options,
                columns=self._task.columns,
                needed=self._task.needed,
            ):
                rows += block.lines
                parsed += block.rows
                skipped += block.blank
                rejected += len(block.bad)
                yield _row_block(block, place)
        before, self._sent = self._sent, self._store.requests
        counts = ReadCounts(
            rows_read=rows,
            rows_parsed=parsed,
            rows_skipped=skipped,
            rows_rejected=rejected,
            requests=self._sent - before,
        )
        end = After(value=part.item.key)
        self.notes.append(Note(read=read.id, end=end, counts=counts, result=read.work))


def _row_block(block: RecordBlock, lines: "_Lines") -> RowBlock:
    bad = tuple(
        BadRow(place=lines.place(bad.line), error=bad.error, raw=bad.raw) for bad in block.bad
    )
    return RowBlock(
        batch=block.batch,
        place=lambda row: lines.place(block.first_line + block.line_of(row)),
        bad=bad,
    )


class _Lines:
    """Locates the lines of a part in its file."""

    def __init__(self, part: FilePart, stream: BufferedIOBase, *, source: FilesOptions) -> None:
        self._part = part
        self._source = source
        self._stream = stream
        self._earlier: int | None = None

    def place(self, own_line: int) -> Place:
        """Return file and line, counted from 1; earlier lines are counted once."""
        if self._earlier is None:
            at = self._stream.tell()
            self._earlier = lines_before(self._stream, self._part, source=self._source)
            self._stream.seek(at)
        return (self._part.item.key, self._earlier + own_line + 1)


def path_values(
    key: str, *, source: FilesOptions, columns: tuple[Column, ...]
) -> dict[str, AnyArray]:
    """Answer the value of every such column, as an array of one."""
    text_by_name = dict(part.split("=", 1) for part in key.split("/")[:-1] if "=" in part)
    return {
        column.name: _value(column, text_by_name, missing=source.missing_columns)
        for column in columns
        if column.name in source.path_keys
    }


def _value(
    column: Column, text_by_name: dict[str, str], *, missing: MissingColumns
) -> AnyArray:
    text = text_by_name.get(column.name)
    if text is None and missing is MissingColumns.FAIL:
        raise UnreadableFileError(
            f'its path has no folder "{column.name}=…"',
            hint='Set "missing_columns" to "null", or put the file into such a folder.',
        )
    value = None if text in (None, _NULL) else unquote(str(text))
    try:
        return cast_array(pa.array([value], pa.string()), arrow_type(column.type))
    except CastError as error:
        raise UnreadableFileError(
            f'column "{column.name}" of its path: {error.reason}',
            hint='Declare the column as STRING in "schema".',
        ) from error


CUT_BYTES_MIN = 4 * 2**20


def share_out(
    files: Sequence[LoadedItem], *, tasks: int, splittable: Callable[[LoadedItem], bool]
) -> tuple[tuple[FilePart, ...], ...]:
    """Cut the files, in order, into at most ``tasks`` shares of nearly equal bytes.

    A share ends inside a file only where both parts are worth a task of their own; so the
    first failing share holds the first failing line. No share is empty.
    """
    total = sum(file.size_bytes for file in files)
    wanted = max(1, min(tasks, len(files) + total // CUT_BYTES_MIN))
    shares: list[list[FilePart]] = [[]]
    taken = 0
    for file in files:
        cuts = wanted if splittable(file) else 1
        for read in _cut(file, taken=taken, total=total, shares=cuts):
            share = _share_of(taken + (read.start + read.end) / 2, total=total, shares=wanted)
            if share >= len(shares) and shares[-1]:
                shares.append([])
            shares[-1].append(read)
        taken += file.size_bytes
    return tuple(tuple(share) for share in shares if share)


def _share_of(middle: float, *, total: int, shares: int) -> int:
    return min(shares - 1, int(middle * shares / total)) if total else 0


def _cut(file: LoadedItem, *, taken: int, total: int, shares: int) -> Iterator[FilePart]:
    start = 0
    for share in range(1, shares):
        cut = total * share // shares - taken
        if start + CUT_BYTES_MIN <= cut <= file.size_bytes - CUT_BYTES_MIN:
            yield FilePart(item=file, start=start, end=cut)
            start = cut
    yield FilePart(item=file, start=start, end=file.size_bytes)


ROW = "_row"


def read_records(
    stream: BufferedIOBase,
    read: FilePart,
    *,
    source: FilesOptions,
    columns: tuple[Column, ...],
    needed: Sequence[str],
) -> Iterator[RecordBlock]:
    """Read the records of a part; batches have exactly the needed columns, in this order."""
    own = tuple(column for column in columns if column.name not in source.path_keys)
    wanted = tuple(column.name for column in own if column.name in needed)
    part = _Part(
        read=read,
        columns=arrow_schema(own),
        wanted=wanted,
        missing=source.missing_columns,
        rescue=RESCUED in needed and RESCUED not in {column.name for column in columns},
    )
    try:
        fixed = _fixed_values(read, source=source, columns=columns, needed=needed)
        if source.format is not FileFormat.PARQUET:
            read_ahead(stream, read.start, read.end)
        content = decompressed(stream, compression(source, read.item.key))
        for block in _READERS[source.format.family](content, source, part):
            yield _completed(block, needed=needed, fixed=fixed)
    except UnreadableFileError as error:
        raise UnreadableFileError(
            f'file "{read.item.key}": {error.message}', detail=error.detail, hint=error.hint
        ) from error


def splittable(file: LoadedItem, *, source: FilesOptions, needed: Sequence[str]) -> bool:
    """Tell whether several tasks may read parts of the file."""
    if ROW in needed:
        return False
    match source.format.family:
        case FileFormat.PARQUET:
            return True
        case FileFormat.CSV:
            whole_lines = csv_splittable(csv_layout(source))
        case _:
            whole_lines = not source.strip_outer_array
    return whole_lines and compression(source, file.key) is CompressType.PLAIN


def lines_before(stream: BufferedIOBase, read: FilePart, *, source: FilesOptions) -> int:
    """Count the lines, or rows, of the file that a part's own first one comes behind."""
    if not read.start:
        return 0
    if source.format is FileFormat.PARQUET:
        groups = read_row_groups(stream)
        return sum(group.rows for group in groups if group.first_byte < read.start)
    csv = source.format.family is FileFormat.CSV
    ending = csv_layout(source).ending if csv else b"\n"
    # The first own line begins behind the first line end that ends in or behind the part.
    return count_lines_before(stream, read.start - 1, ending=ending) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What is to be read of a file's content."""

    read: FilePart
    columns: pa.Schema
    wanted: tuple[str, ...]
    missing: MissingColumns
    rescue: bool

    @property
    def end(self) -> int | None:
        """Where the part ends; None for the end of a content that is read as a whole."""
        whole = self.read.start == 0 and self.read.end == self.read.item.size_bytes
        return None if whole else self.read.end


def _json(content: BufferedIOBase, source: FilesOptions, part: _Part) -> Iterator[RecordBlock]:
    reading = json_reading(
        part.columns,
        wanted=part.wanted,
        layout=json_layout(source),
        missing=part.missing,
        rescue=part.rescue,
    )
    return read_json(content, reading=reading, start=part.read.start, end=part.end)


def _csv(content: BufferedIOBase, source: FilesOptions, part: _Part) -> Iterator[RecordBlock]:
    return read_csv(
        content,
        columns=part.columns,
        wanted=part.wanted,
        layout=csv_layout(source),
        start=part.read.start,
        end=part.end,
        missing=part.missing,
        rescue=part.rescue,
    )


def _parquet(
    content: BufferedIOBase,
    source: FilesOptions,  # noqa: ARG001 - As the other formats.
    part: _Part,
) -> Iterator[RecordBlock]:
    return read_parquet(
        content,
        columns=part.columns,
        wanted=part.wanted,
        start=part.read.start,
        end=part.end,
        missing=part.missing,
        rescue=part.rescue,
    )


_Reader = Callable[[BufferedIOBase, FilesOptions, _Part], Iterator[RecordBlock]]
_READERS: dict[FileFormat, _Reader] = {
    FileFormat.JSON: _json,
    FileFormat.CSV: _csv,
    FileFormat.PARQUET: _parquet,
}


def compression(source: FilesOptions, key: str) -> CompressType:
    """Answer how a file is compressed."""
    # Parquet compresses its pages itself.
    if source.format is FileFormat.PARQUET:
        return CompressType.PLAIN
    return compression_of(source.compress_type, key)


def _fixed_values(
    read: FilePart,
    *,
    source: FilesOptions,
    columns: tuple[Column, ...],
    needed: Sequence[str],
) -> dict[str, AnyArray]:
    """Answer the columns that have one value in all rows of the file, as arrays of one."""
    fixed = path_values(read.item.key, source=source, columns=columns)
    type_by_name = {field.name: field.type for field in arrow_schema(METADATA_COLUMNS)}
    about_file = {"_file": read.item.key, "_modified_at": read.item.modified_at}
    taken = {column.name for column in columns}
    for name, value in about_file.items():
        if name in needed and name not in taken:
            fixed[name] = pa.array([value], type_by_name[name])
    return fixed


def _completed(
    block: RecordBlock, *, needed: Sequence[str], fixed: dict[str, AnyArray]
) -> RecordBlock:
    """Give the block's batch all needed columns."""
    if block.batch.schema.names == list(needed):
        return block
    names = set(block.batch.schema.names)
    arrays = [
        block.batch.column(name)
        if name in names
        else pa.repeat(fixed[name][0], block.rows)
        if name in fixed
        else _line_numbers(block)
        for name in needed
    ]
    return replace(block, batch=pa.RecordBatch.from_arrays(arrays, names=list(needed)))


def _line_numbers(block: RecordBlock) -> AnyArray:
    first = block.first_line + 1
    return pa.array([first + block.line_of(row) for row in range(block.rows)], pa.int64())
