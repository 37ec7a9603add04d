"""Divide files among tasks and read their parts in the job's format."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedIOBase
from urllib.parse import unquote

import pyarrow as pa

from penstock.arrow.casts import CastError, cast_array
from penstock.arrow.types import AnyArray, arrow_schema, arrow_type
from penstock.model.epoch import FileRead, SourceFile
from penstock.model.job import JobDefinition
from penstock.model.schema import Column
from penstock.sources.files.options import (
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
from penstock.sources.formats.json_reader import (
    json_layout,
    read_json_documents,
    read_json_lines,
)
from penstock.sources.formats.lines import count_lines_before
from penstock.sources.formats.parquet_footer import read_row_groups
from penstock.sources.formats.parquet_reader import read_parquet
from penstock.storage.store import read_ahead

_NULL = "__HIVE_DEFAULT_PARTITION__"


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
    files: Sequence[SourceFile], *, tasks: int, splittable: Callable[[SourceFile], bool]
) -> tuple[tuple[FileRead, ...], ...]:
    """Cut the files, in order, into at most ``tasks`` shares of nearly equal bytes.

    A share ends inside a file only where both parts are worth a task of their own; so the
    first failing share holds the first failing line. No share is empty.
    """
    total = sum(file.size_bytes for file in files)
    wanted = max(1, min(tasks, len(files) + total // CUT_BYTES_MIN))
    shares: list[list[FileRead]] = [[]]
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


def _cut(file: SourceFile, *, taken: int, total: int, shares: int) -> Iterator[FileRead]:
    start = 0
    for share in range(1, shares):
        cut = total * share // shares - taken
        if start + CUT_BYTES_MIN <= cut <= file.size_bytes - CUT_BYTES_MIN:
            yield FileRead(file=file, start=start, end=cut)
            start = cut
    yield FileRead(file=file, start=start, end=file.size_bytes)


ROW = "_row"


def read_records(
    stream: BufferedIOBase,
    read: FileRead,
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
        content = decompressed(stream, compression(source, read.file.key))
        for block in _READERS[source.format.family](content, source, part):
            yield _completed(block, needed=needed, fixed=fixed)
    except UnreadableFileError as error:
        raise UnreadableFileError(
            f'file "{read.file.key}": {error.message}', detail=error.detail, hint=error.hint
        ) from error


def needed_columns(definition: JobDefinition) -> tuple[str, ...]:
    """Answer the columns of the source, or beside it, that anything is made of."""
    if definition.query is not None:
        return definition.query.needed
    return tuple(dict.fromkeys(t.path[0] for t in definition.targets if t.path))


def splittable(file: SourceFile, *, source: FilesOptions, needed: Sequence[str]) -> bool:
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


def lines_before(stream: BufferedIOBase, read: FileRead, *, source: FilesOptions) -> int:
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

    read: FileRead
    columns: pa.Schema
    wanted: tuple[str, ...]
    missing: MissingColumns
    rescue: bool

    @property
    def end(self) -> int | None:
        """Where the part ends; None for the end of a content that is read as a whole."""
        whole = self.read.start == 0 and self.read.end == self.read.file.size_bytes
        return None if whole else self.read.end


def _json(content: BufferedIOBase, source: FilesOptions, part: _Part) -> Iterator[RecordBlock]:
    layout = json_layout(source)
    if layout.plain and not part.rescue and part.missing is MissingColumns.NULL:
        schema = pa.schema([part.columns.field(name) for name in part.wanted])
        return read_json_lines(content, schema=schema, start=part.read.start, end=part.end)
    return read_json_documents(
        content,
        columns=part.columns,
        wanted=part.wanted,
        layout=layout,
        start=part.read.start,
        end=part.end,
        missing=part.missing,
        rescue=part.rescue,
    )


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
    read: FileRead,
    *,
    source: FilesOptions,
    columns: tuple[Column, ...],
    needed: Sequence[str],
) -> dict[str, AnyArray]:
    """Answer the columns that have one value in all rows of the file, as arrays of one."""
    fixed = path_values(read.file.key, source=source, columns=columns)
    type_by_name = {field.name: field.type for field in arrow_schema(METADATA_COLUMNS)}
    about_file = {"_file": read.file.key, "_modified_at": read.file.modified_at}
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
