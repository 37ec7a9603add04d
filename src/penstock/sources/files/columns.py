"""Which columns the files have: those given, or those that the first files show."""

from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import islice

from penstock.errors import Code, UserError
from penstock.model.formats import CSV_KEYS, JSON_KEYS
from penstock.model.options import print_options
from penstock.model.schema import Column, Primitive, columns_sql
from penstock.sources.files.globs import files_glob
from penstock.sources.files.kind import FileFormat, FilesOptions
from penstock.sources.files.listing import list_all
from penstock.sources.files.reader import compression
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.compression import decompressed
from penstock.sources.formats.csv_text import csv_layout
from penstock.sources.formats.inference import (
    infer_columns,
    infer_csv_columns,
    infer_parquet_columns,
    numbers_as_texts,
)
from penstock.sources.formats.json_reader import JsonLayout, first_records, json_layout
from penstock.sql.types import parse_columns
from penstock.storage.options import StoreOptions
from penstock.storage.store import ObjectMeta, Store, open_store
from penstock.storage.uris import parse_uri

_FILES_MAX = 5
_RECORDS_MAX = 1000


def find_columns(
    source: FilesOptions, values: StoreOptions | None = None
) -> tuple[Column, ...]:
    """Answer the columns of the files; at least one file must be there.

    The values are those of the source's own options, with no reference left.
    """
    place = parse_uri(source.uri)
    store, _ = open_store(place, values)
    first = list(islice(list_all(store, files_glob(place)), _FILES_MAX))
    if not first:
        raise UserError(
            f'no file matches "{source.uri}"',
            code=Code.META_NOT_FOUND_ERR,
            hint="Check the path and the pattern; at least one file must be there already.",
        )
    _check_options(source)
    if source.schema:
        columns = parse_columns(source.schema)
    else:
        with ExitStack() as stack:
            columns = _inferred(source, first, store=store, stack=stack)
        _expect_sayable(columns)
    return _with_path_keys(columns, source)


def _check_options(source: FilesOptions) -> None:
    """Refuse options that mean nothing in the format, or mean two things at once."""
    family = source.format.family
    given = [key for key, _ in print_options(source)]
    foreign = [key for other, keys in _KEYS.items() if other is not family for key in keys]
    for key in given:
        if key in foreign:
            raise UserError(
                f'option "{key}" has no meaning for the format {source.format}',
                code=Code.OPTION_ERR,
                hint=f"It is an option of {_format_of(key)}.",
            )
    if family is FileFormat.CSV:
        csv_layout(source)
    if family is FileFormat.JSON:
        json_layout(source)


_KEYS: dict[FileFormat, tuple[str, ...]] = {
    FileFormat.CSV: ("column_separator", "line_delimiter", "skip_lines", *CSV_KEYS),
    FileFormat.JSON: JSON_KEYS,
}


def _format_of(key: str) -> str:
    return next(str(family) for family, keys in _KEYS.items() if key in keys)


def _inferred(
    source: FilesOptions, metas: list[ObjectMeta], *, store: Store, stack: ExitStack
) -> tuple[Column, ...]:
    opening = _Opening(source, store=store, stack=stack)
    streams = opening.streams(metas)
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
            f'file "{opening.key}": {error.message}',
            code=error.code,
            detail=error.detail,
            hint=error.hint,
        ) from error


def _json_columns(streams: Iterator[BufferedIOBase], layout: JsonLayout) -> tuple[Column, ...]:
    if layout.plain:
        return infer_columns(streams)
    if layout.paths:
        raise UserError(
            'option "schema" is needed with jsonpaths, which have no names',
            code=Code.OPTION_ERR,
            hint="Name the columns as in CREATE TABLE: 'schema' = 'id BIGINT, city STRING'.",
        )
    records = (
        first_records(stream, layout=layout, records_max=_RECORDS_MAX) for stream in streams
    )
    columns = infer_columns(records, lines_max=_RECORDS_MAX)
    return numbers_as_texts(columns) if layout.num_as_string else columns


def _with_path_keys(columns: tuple[Column, ...], source: FilesOptions) -> tuple[Column, ...]:
    """Add the columns whose values stand in the path, as texts unless they are declared."""
    known = {column.name for column in columns}
    added = (key for key in source.path_keys if key not in known)
    return columns + tuple(Column(name=key, type=Primitive.STRING) for key in added)


def _expect_sayable(columns: tuple[Column, ...]) -> None:
    """Refuse inferred columns that SHOW CREATE could not write so that they are read back."""
    try:
        parse_columns(columns_sql(columns))
    except UserError as error:
        raise UserError(
            f"the files hold a field that cannot be a column: {error.message}",
            code=Code.TYPE_ERR,
            hint='Name the wanted columns with the option "schema".',
        ) from error


class _Opening:
    """Opens files one behind the other and knows which one was opened last."""

    def __init__(self, source: FilesOptions, *, store: Store, stack: ExitStack) -> None:
        self._source = source
        self._store = store
        self._stack = stack
        self.key = ""

    def streams(self, metas: list[ObjectMeta]) -> Iterator[BufferedIOBase]:
        """Yield the contents of files."""
        for meta in metas:
            self.key = meta.key
            stream = self._stack.enter_context(self._store.open(meta.key, etag=meta.etag))
            yield decompressed(stream, compression(self._source, meta.key))
