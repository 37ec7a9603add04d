"""Read parts of files in the job's format, and infer the columns of files."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import BufferedIOBase
from itertools import islice
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from penstock.arrow.casts import CastError, cast_array
from penstock.arrow.types import AnyArray, arrow_schema, arrow_type
from penstock.errors import Code, UserError
from penstock.model.codec import from_text
from penstock.model.epoch import LoadedItem
from penstock.model.formats import CSV_KEYS, JSON_KEYS
from penstock.model.options import print_options
from penstock.model.schema import Column, Primitive, columns_sql
from penstock.model.split import After, Note, ReadCounts, SplitRead
from penstock.sources.files.globs import files_glob, list_all
from penstock.sources.files.kind import (
    METADATA_COLUMNS,
    RESCUED,
    CompressType,
    FileFormat,
    FilesOptions,
    MissingColumns,
)
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError, Wanted
from penstock.sources.formats.compression import compression_of, decompress
from penstock.sources.formats.csv_reader import read_csv
from penstock.sources.formats.csv_text import csv_layout, csv_splittable
from penstock.sources.formats.inference import (
    infer_columns,
    infer_csv_columns,
    infer_parquet_columns,
    numbers_as_texts,
)
from penstock.sources.formats.json_reader import (
    JsonLayout,
    first_records,
    json_layout,
    json_reading,
    read_json,
)
from penstock.sources.formats.lines import count_lines_before
from penstock.sources.formats.parquet_footer import read_row_groups
from penstock.sources.formats.parquet_reader import read_parquet
from penstock.sources.registry import source_options
from penstock.sources.source import BadRow, Place, ReadTask, RowBlock, TaskReader
from penstock.storage.options import StoreOptions
from penstock.storage.store import ObjectMeta, Store, open_sealed, open_store, read_ahead
from penstock.storage.uris import parse_uri

_NULL = "__HIVE_DEFAULT_PARTITION__"
# Number of files that are requested ahead while one file is read.
_READS_AHEAD = 8
# The limits of inference: files, and records of a file whose JSON layout is not plain.
_INFERENCE_FILES_MAX = 5
_INFERENCE_RECORDS_MAX = 1000
# The options that apply to one format only.
_FAMILY_BY_KEY = dict.fromkeys(
    ("column_separator", "line_delimiter", "skip_lines", *CSV_KEYS), FileFormat.CSV
) | dict.fromkeys(JSON_KEYS, FileFormat.JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of one file: the lines that start in [start, end)."""

    item: LoadedItem
    start: int
    end: int


def splittable(file: LoadedItem, *, source: FilesOptions, needed: Sequence[str]) -> bool:
    """Return whether several tasks can read parts of the file."""
    if "_row" in needed:
        return False
    match source.format.family:
        case FileFormat.PARQUET:
            return True
        case FileFormat.CSV:
            whole_lines = csv_splittable(csv_layout(source))
        case _:
            whole_lines = not source.strip_outer_array
    return whole_lines and _compression(source, file.key) is CompressType.PLAIN


def _compression(source: FilesOptions, key: str) -> CompressType:
    # A Parquet file is not compressed as a whole, only its pages.
    if source.format is FileFormat.PARQUET:
        return CompressType.PLAIN
    return compression_of(source.compress_type, key)


class FilesReader(TaskReader):
    """Reads parts of files, one after the other, and leaves a note for each part."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._options: FilesOptions = source_options(task.source)
        self._store, _ = open_sealed(self._options.uri, task.access)
        self._sent = 0
        self.notes: list[Note] = []
        # The columns in the content of the files, not in their paths.
        own = tuple(c for c in task.columns if c.name not in self._options.path_keys)
        # The needed metadata columns. A column of the files with this name takes precedence.
        self._metadata = set(task.needed) - {column.name for column in task.columns}
        self._wanted = Wanted(
            columns=arrow_schema(own),
            names=tuple(column.name for column in own if column.name in task.needed),
            missing=self._options.missing_columns,
            rescue=RESCUED in self._metadata,
        )

    @property
    def requests(self) -> int:
        return self._store.requests

    def blocks(self) -> Iterator[RowBlock]:
        parts = [from_text(FilePart, read.work) for read in self._task.reads]
        for number, (read, part) in enumerate(zip(self._task.reads, parts, strict=True)):
            for following in parts[number + 1 : number + 1 + _READS_AHEAD]:
                self._store.prefetch(following.item.key, etag=following.item.etag)
            yield from self._part(read, part)

    def _part(self, read: SplitRead, part: FilePart) -> Iterator[RowBlock]:
        rows = parsed = skipped = rejected = 0
        with self._store.open(part.item.key, etag=part.item.etag) as stream:
            lines = _Lines(part, stream, source=self._options)
            for block in self._records(stream, part):
                rows += block.lines
                parsed += block.batch.num_rows
                skipped += block.blank
                rejected += len(block.bad)
                yield _row_block(block, lines)
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

    def _records(self, stream: BufferedIOBase, part: FilePart) -> Iterator[RecordBlock]:
        """Yield the records of a part; batches have exactly the needed columns, in order."""
        try:
            fixed = self._fixed_values(part.item)
            if self._options.format is not FileFormat.PARQUET:
                read_ahead(stream, part.start, part.end)
            content = decompress(stream, _compression(self._options, part.item.key))
            for block in self._content_records(content, part):
                yield self._completed(block, fixed=fixed)
        except UnreadableFileError as error:
            raise UnreadableFileError(
                f'file "{part.item.key}": {error.message}', detail=error.detail, hint=error.hint
            ) from error

    def _content_records(
        self, content: BufferedIOBase, part: FilePart
    ) -> Iterator[RecordBlock]:
        options, wanted, start = self._options, self._wanted, part.start
        # Read a whole file to the end of its content: a compressed file is shorter than that.
        whole = start == 0 and part.end == part.item.size_bytes
        end = None if whole else part.end
        match options.format.family:
            case FileFormat.PARQUET:
                return read_parquet(content, wanted=wanted, start=start, end=end)
            case FileFormat.CSV:
                layout = csv_layout(options)
                return read_csv(content, wanted=wanted, layout=layout, start=start, end=end)
            case _:
                reading = json_reading(wanted, layout=json_layout(options))
                return read_json(content, reading=reading, start=start, end=end)

    def _fixed_values(self, item: LoadedItem) -> dict[str, AnyArray]:
        """Return the columns with one value for all rows of a file, as arrays of length 1."""
        text_by_name = dict(
            part.split("=", 1) for part in item.key.split("/")[:-1] if "=" in part
        )
        fixed = {
            column.name: _path_value(
                column,
                text_by_name.get(column.name),
                missing=self._options.missing_columns,
            )
            for column in self._task.columns
            if column.name in self._options.path_keys
        }
        type_by_name = {field.name: field.type for field in arrow_schema(METADATA_COLUMNS)}
        for name, value in (("_file", item.key), ("_modified_at", item.modified_at)):
            if name in self._metadata:
                fixed[name] = pa.array([value], type_by_name[name])
        return fixed

    def _completed(self, block: RecordBlock, *, fixed: dict[str, AnyArray]) -> RecordBlock:
        """Return the block with all needed columns."""
        needed, found = list(self._task.needed), block.batch.schema.names
        if found == needed:
            return block
        arrays = []
        for name in needed:
            if name in found:
                arrays.append(block.batch.column(name))
            elif name in fixed:
                arrays.append(pa.repeat(fixed[name][0], block.batch.num_rows))
            else:
                # Lines are counted from 1.
                arrays.append(pa.array(np.asarray(block.record_of_row) + 1, pa.int64()))
        return replace(block, batch=pa.RecordBatch.from_arrays(arrays, names=needed))


def _path_value(column: Column, text: str | None, *, missing: MissingColumns) -> AnyArray:
    """Return the value of a path column, as an array of length 1."""
    if text is None and missing is MissingColumns.FAIL:
        raise UnreadableFileError(
            f'the path has no folder "{column.name}=…"',
            hint=f'Set the option "missing_columns" to "null", or move the file into a folder '
            f'named "{column.name}=<value>".',
        )
    value = None if text in (None, _NULL) else unquote(str(text))
    try:
        return cast_array(pa.array([value], pa.string()), arrow_type(column.type))
    except CastError as error:
        raise UnreadableFileError(
            f'column "{column.name}" in the path: {error.reason}',
            hint='Declare the column as STRING in the option "schema".',
        ) from error


def _row_block(block: RecordBlock, lines: "_Lines") -> RowBlock:
    bad = tuple(
        BadRow(place=lines.place(bad.record), error=bad.error, raw=bad.raw) for bad in block.bad
    )
    return RowBlock(
        batch=block.batch,
        place=lambda row: lines.place(int(block.record_of_row[row])),
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
        """Return the file, and the line in the file, of line ``own_line`` of this part.

        ``own_line`` counts from 0, and the returned line from 1. The lines before the part are
        counted in the first call only.
        """
        if self._earlier is None:
            at = self._stream.tell()
            self._earlier = self._count_earlier()
            self._stream.seek(at)
        return (self._part.item.key, self._earlier + own_line + 1)

    def _count_earlier(self) -> int:
        start = self._part.start
        if not start:
            return 0
        if self._source.format is FileFormat.PARQUET:
            groups = read_row_groups(self._stream)
            return sum(group.rows for group in groups if group.first_byte < start)
        csv = self._source.format.family is FileFormat.CSV
        ending = csv_layout(self._source).ending if csv else b"\n"
        # One more line starts before the part. This line ends at or after ``start``.
        return count_lines_before(self._stream, start - 1, ending=ending) + 1


def find_columns(source: FilesOptions, values: StoreOptions) -> tuple[Column, ...]:
    """Return the columns of the option "schema", or infer them from the first files.

    ``values`` are the store's options with secrets in place of references.
    """
    # Imported here, because tasks import this module and do not need the SQL parser.
    from penstock.sql.types import parse_columns

    place = parse_uri(source.uri)
    store, _ = open_store(place, values)
    first = list(islice(list_all(store, files_glob(place)), _INFERENCE_FILES_MAX))
    if not first:
        raise UserError(
            f'no file matches "{source.uri}"',
            code=Code.META_NOT_FOUND_ERR,
            hint='Check the option "uri"; at least one matching file must exist.',
        )
    _check_options(source)
    if source.schema:
        columns = parse_columns(source.schema)
    else:
        columns = _inferred(source, first, store=store)
        try:
            # SHOW CREATE prints the columns as SQL, which must be valid.
            parse_columns(columns_sql(columns))
        except UserError as error:
            raise UserError(
                f"a field of the files cannot be a column: {error.message}",
                code=Code.TYPE_ERR,
                hint='Declare the columns to load with the option "schema".',
            ) from error
    known = {column.name for column in columns}
    added = (key for key in source.path_keys if key not in known)
    return columns + tuple(Column(name=key, type=Primitive.STRING) for key in added)


def _check_options(source: FilesOptions) -> None:
    """Raise UserError for options that do not apply to the format or contradict each other."""
    family = source.format.family
    for key, _ in print_options(source):
        if _FAMILY_BY_KEY.get(key, family) is not family:
            raise UserError(
                f'option "{key}" does not apply to the format {source.format}',
                hint=f'Remove the option, or set "format" to {_FAMILY_BY_KEY[key]}.',
            )
    if family is FileFormat.CSV:
        csv_layout(source)
    if family is FileFormat.JSON:
        json_layout(source)


def _inferred(
    source: FilesOptions, metas: list[ObjectMeta], *, store: Store
) -> tuple[Column, ...]:
    opened: list[str] = []

    def contents(stack: ExitStack) -> Iterator[BufferedIOBase]:
        for meta in metas:
            opened.append(meta.key)
            stream = stack.enter_context(store.open(meta.key, etag=meta.etag))
            yield decompress(stream, _compression(source, meta.key))

    with ExitStack() as stack:
        streams = contents(stack)
        try:
            match source.format.family:
                case FileFormat.PARQUET:
                    return infer_parquet_columns(streams)
                case FileFormat.CSV:
                    return infer_csv_columns(streams, csv_layout(source))
                case _:
                    return _json_columns(streams, json_layout(source))
        except UnreadableFileError as error:
            raise UserError(
                f'file "{opened[-1]}": {error.message}',
                code=error.code,
                detail=error.detail,
                hint=error.hint,
            ) from error


def _json_columns(streams: Iterator[BufferedIOBase], layout: JsonLayout) -> tuple[Column, ...]:
    if layout.plain:
        return infer_columns(streams)
    if layout.paths:
        raise UserError(
            'option "jsonpaths" requires the option "schema"',
            detail="Paths do not name the columns.",
            hint="Declare the columns as in CREATE TABLE: 'schema' = 'id BIGINT, city STRING'.",
        )
    records = (
        first_records(stream, layout=layout, records_max=_INFERENCE_RECORDS_MAX)
        for stream in streams
    )
    columns = infer_columns(records, lines_max=_INFERENCE_RECORDS_MAX)
    return numbers_as_texts(columns) if layout.num_as_string else columns
