"""Files of a folder or bucket as a source kind: options, start offset, SHOW.

Functions import Arrow and the stores when they are called, so that this module loads fast.
"""

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import reduce

from penstock.errors import UserError
from penstock.model.formats import format_option
from penstock.model.options import Reveal, group, option
from penstock.model.schema import Column, Primitive, columns_sql
from penstock.model.split import After, Horizon, Position, Progress, SplitProgress
from penstock.sources.source import (
    Draft,
    Place,
    ReadTask,
    ShowRequest,
    Source,
    SourceKind,
    SourceServices,
    SourceView,
    StartRequest,
    TaskReader,
)
from penstock.storage.options import (
    Choice,
    StoreOptions,
    require_applicable,
    resolve_store_options,
)
from penstock.storage.uris import Scheme, Uri, has_scheme, parse_uri


class LateFiles(StrEnum):
    """Whether to load a file that sorts before files that are already loaded."""

    LOAD = "load"
    IGNORE = "ignore"


class ModifiedFiles(StrEnum):
    """How to react when a loaded file has changed."""

    IGNORE = "ignore"
    FAIL = "fail"


class MissingColumns(StrEnum):
    """How to load a record that lacks a column."""

    NULL = "null"
    FAIL = "fail"


class FileFormat(StrEnum):
    """How the bytes of a file become rows."""

    JSON = "json"
    CSV = "csv"
    CSV_WITH_NAMES = "csv_with_names"
    CSV_WITH_NAMES_AND_TYPES = "csv_with_names_and_types"
    PARQUET = "parquet"

    @property
    def family(self) -> "FileFormat":
        """CSV for every CSV format, with or without a header; otherwise the format itself."""
        return FileFormat.CSV if self.value.startswith("csv") else self


class CompressType(StrEnum):
    """How a file is compressed."""

    AUTO = "auto"
    PLAIN = "plain"
    GZ = "gz"
    ZSTD = "zstd"
    BZ2 = "bz2"
    LZ4 = "lz4"
    SNAPPY = "snappy"


# The column for fields that have no column of their own.
RESCUED = "_rescued"
# Columns about the origin of a row; ``*`` does not include them. A column of the files with
# the same name takes precedence.
METADATA_COLUMNS = (
    Column(name="_file", type=Primitive.STRING),
    Column(name="_row", type=Primitive.BIGINT),
    Column(name="_modified_at", type=Primitive.TIMESTAMP),
    Column(name=RESCUED, type=Primitive.STRING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOptions:
    """Options of the source function FILES (or S3)."""

    uri: str = option(
        "Files to load: file:///folder/ or s3://bucket/folder/, or a glob such as "
        "s3://bucket/in/**/*.json; also gs:// and az://."
    )
    format: FileFormat = option("Format of the files.")
    schema: str = option(
        "Columns of the files, as in CREATE TABLE; by default, inferred from the first files.",
        default="",
    )
    compress_type: CompressType = option(
        "Compression of the files; auto detects it by suffix (.gz, .zst, .bz2, .lz4, .snappy).",
        default=CompressType.AUTO,
    )
    late_files: LateFiles = option(
        "Whether to load a file whose key sorts before keys that are already loaded.",
        default=LateFiles.LOAD,
    )
    modified_files: ModifiedFiles = option(
        "How to react when a loaded file changes: ignore counts the change, fail pauses the "
        "job.",
        default=ModifiedFiles.IGNORE,
    )
    late_window: timedelta | None = option(
        "Maximum age of a late file: a file whose key sorts before loaded keys. Older late "
        "files are not loaded, and entries of this age are deleted from the file index.",
        default=None,
        none_word="all",
        at_least=timedelta(minutes=1),
    )
    ordered_listing: Choice = option(
        "Whether the store lists keys in byte order, so that a poll lists only keys after the "
        "newest loaded key; auto means true for Google Cloud Storage and Amazon S3 itself, and "
        "false for all other stores.",
        default=Choice.AUTO,
    )
    audit_interval: timedelta = option(
        "With ordered listing: interval of complete listings, which find late files. Every "
        "start of the job lists completely too.",
        default=timedelta(hours=1),
        at_least=timedelta(seconds=1),
    )
    request_budget: int | None = option(
        "Maximum requests per hour to the bucket. When they are used up, the source is polled "
        "less often.",
        default=None,
        none_word="unlimited",
        at_least=1,
    )
    missing_columns: MissingColumns = option(
        "How to load a column that a file or record does not have: as NULL, or as an error.",
        default=MissingColumns.NULL,
    )
    path_partition_keys: str = option(
        "Columns whose values are in the path as name=value, separated by commas.",
        default="",
    )
    column_separator: str = option("CSV: separator between two fields.", default="\t")
    line_delimiter: str = option("CSV: delimiter at the end of each row.", default="\n")
    enclose: str = format_option("enclose")
    escape: str = format_option("escape")
    skip_lines: int = option(
        "CSV: number of lines to skip at the start of each file.", default=0, at_least=0
    )
    trim_double_quotes: bool = format_option("trim_double_quotes")
    empty_field_as_null: bool = format_option("empty_field_as_null")
    strip_outer_array: bool = format_option("strip_outer_array")
    json_root: str = format_option("json_root")
    jsonpaths: str = format_option("jsonpaths")
    num_as_string: bool = format_option("num_as_string")
    store: StoreOptions = group(StoreOptions)

    @property
    def header_lines(self) -> int:
        """Number of header lines of a file."""
        lines = {FileFormat.CSV_WITH_NAMES: 1, FileFormat.CSV_WITH_NAMES_AND_TYPES: 2}
        return lines.get(self.format, 0)

    @property
    def path_keys(self) -> tuple[str, ...]:
        """The columns whose values are in the path."""
        return tuple(key.strip() for key in self.path_partition_keys.split(",") if key.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesStart:
    """Start options; part of a statement, not stored."""

    offset: str = option(
        'Start after this file, as JSON: {"fileName": "/data/in/a.json"}. Files with smaller '
        "keys are not loaded.",
        default="",
    )


def later_position(one: Position, other: Position) -> Position:
    """Return the later of two positions."""
    return max(one, other, key=_key)


def _key(position: Position) -> str:
    """Return the key of a position.

    Python compares keys by code points. A comparison by UTF-8 bytes has the same result.
    """
    return position.value if isinstance(position, After) else ""


def is_above(key: str, position: Position) -> bool:
    """Return whether a key comes strictly after a position."""
    return key > _key(position)


def read_offset(text: str, *, uri: str) -> Position:
    """Parse ``{"fileName": "/in/a.json"}``; return the position after that file."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    name = data.get("fileName") if isinstance(data, dict) and len(data) == 1 else None
    # No file name contains half a surrogate pair or NUL.
    plain = str(name).encode("utf-8", "ignore").decode().replace("\0", "")
    if not isinstance(name, str) or name != plain or not name.strip("/"):
        raise UserError(
            f'option "offset" must be JSON with the key fileName, not "{text}"',
            hint='Write \'{"fileName": "/data/in/2026-11-15.json"}\' to start after that file.',
        )
    return After(value=_offset_key(name, place=parse_uri(uri)))


def _offset_key(name: str, *, place: Uri) -> str:
    """Return the key of a file name; a full URI must have the job's scheme and bucket."""
    if has_scheme(name):
        given = parse_uri(name)
        if (given.scheme, given.bucket) != (place.scheme, place.bucket):
            raise UserError(
                f'option "offset" must name a file in {replace(place, key="")}, not "{name}"',
                hint="Write the full URI of the file, or only its key.",
            )
        return given.key
    key = name.lstrip("/")
    return f"/{key}" if place.scheme is Scheme.FILE else key


def write_offset(position: Position) -> str:
    """Return the offset text of a position; empty for the horizon.

    ``read_offset`` converts the text back to the same position.
    """
    name = _key(position)
    return json.dumps({"fileName": name}, ensure_ascii=False) if name else ""


def _define(draft: Draft) -> tuple[Column, ...]:
    from penstock.sources.files.reader import find_columns

    return find_columns(draft.options, draft.values)


def _reveal(options: FilesOptions, reveal: Reveal) -> StoreOptions:
    """Return the values of the store's options; no other option can refer to a secret."""
    require_applicable(options.uri, options.store)
    return resolve_store_options(options.store, reveal)


def _start(request: StartRequest) -> Progress | None:
    options: FilesOptions = request.options
    start: Position = Horizon()
    if "offset" in request.given:
        start = read_offset(request.given["offset"], uri=options.uri)
    elif request.before is not None:
        return None
    return (SplitProgress(split=options.uri, floor=start, position=start),)


def _open(services: SourceServices) -> Source:
    from penstock.sources.files.source import FilesSource
    from penstock.sources.registry import source_options

    return FilesSource(source_options(services.state.definition.source), services=services)


def _reader(task: ReadTask) -> TaskReader:
    from penstock.sources.files.reader import FilesReader

    return FilesReader(task)


def _probe(options: FilesOptions, values: StoreOptions) -> None:
    from penstock.sources.files.globs import files_glob
    from penstock.storage.store import open_store

    place = parse_uri(options.uri)
    store, _ = open_store(place, values)
    store.holds(files_glob(place).prefixes[0])


def _show(request: ShowRequest) -> SourceView:
    split = request.state.progress[0]
    # No loaded file is after the position, unless a user set an earlier offset.
    given = not isinstance(split.floor, Horizon)
    loaded = [progress[0].position for progress in request.history if progress and given]
    return SourceView(
        offset=write_offset(split.position),
        end_offset=write_offset(reduce(later_position, loaded, split.position)),
        start=(("offset", write_offset(split.floor)),) if write_offset(split.floor) else (),
    )


def _position(progress: Progress) -> str:
    return ", ".join(_key(split.position) or "start" for split in progress)


def _span(start: Progress, end: Progress) -> str:
    """Return the positions before and after an attempt; the end is empty until committed."""
    names = {
        "startFileName": _key(start[0].position) if start else "",
        "endFileName": _key(end[0].position) if end else "",
    }
    return json.dumps(names, ensure_ascii=False)


def _place_text(place: Place) -> str:
    file, line = place
    return f'file "{file}"' + ("" if line is None else f", line {line}")


FILES = SourceKind(
    name="FILES",
    functions=("FILES", "S3"),
    job_kinds=("STREAMING",),
    split_noun="prefix",
    waiting_noun="file",
    read_noun="file",
    measures=("files", "bytes", "time"),
    options=FilesOptions,
    start_options=FilesStart,
    fixed=("uri",),
    metadata_columns=METADATA_COLUMNS,
    place_columns=(
        Column(name="file", type=Primitive.STRING),
        Column(name="line", type=Primitive.BIGINT),
    ),
    place=lambda options: options.uri,
    local=lambda options: parse_uri(options.uri).scheme is Scheme.FILE,
    freeze=lambda options, columns: replace(options, schema=columns_sql(columns)),
    place_text=_place_text,
    position=_position,
    span=_span,
    reveal=_reveal,
    define=_define,
    start=_start,
    open=_open,
    reader=_reader,
    probe=_probe,
    show=_show,
)
