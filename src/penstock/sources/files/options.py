"""Options of a source of files: which ones, and how their bytes become rows."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from penstock.model.options import group, option
from penstock.model.schema import Column, Primitive
from penstock.storage.options import Choice, StoreOptions


class LateFiles(StrEnum):
    """What happens to a file that sorts before what was already loaded."""

    LOAD = "load"
    IGNORE = "ignore"


class ModifiedFiles(StrEnum):
    """What happens when a loaded file has changed."""

    IGNORE = "ignore"
    FAIL = "fail"


class MissingColumns(StrEnum):
    """What a column is that a file or a record does not have."""

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
    def header_lines(self) -> int:
        """How many lines of a file name its columns and are no rows."""
        names = self is FileFormat.CSV_WITH_NAMES
        return 1 if names else 2 if self is FileFormat.CSV_WITH_NAMES_AND_TYPES else 0

    @property
    def family(self) -> "FileFormat":
        """The format without what its first lines are."""
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


# The column of what a file holds beyond its columns.
RESCUED = "_rescued"
# What is known of a row beside its content; no part of ``*``. A column of the files that is
# called alike goes first.
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
        "Columns of the files, as in CREATE TABLE; inferred from the first files when absent.",
        default="",
    )
    compress_type: CompressType = option(
        "How the files are compressed; auto goes by the suffix (.gz, .zst, .bz2, .lz4, "
        ".snappy).",
        default=CompressType.AUTO,
    )
    late_files: LateFiles = option(
        "Whether a file that sorts before the newest loaded one is loaded.",
        default=LateFiles.LOAD,
    )
    modified_files: ModifiedFiles = option(
        "Whether a change of a loaded file is ignored (and counted) or pauses the job.",
        default=ModifiedFiles.IGNORE,
    )
    late_window: timedelta | None = option(
        "How long a file that sorts before loaded ones counts as new after it was written; "
        "older ones count as loaded, and the index forgets them.",
        default=None,
        none_word="all",
        at_least=timedelta(minutes=1),
    )
    ordered_listing: Choice = option(
        "Whether the store lists keys in byte order, so that a look asks only for those behind "
        "the newest loaded one; auto: yes on AWS itself and Google, no elsewhere.",
        default=Choice.AUTO,
    )
    audit_interval: timedelta = option(
        "With ordered listing: how often everything is listed to find late files; also at "
        "every start.",
        default=timedelta(hours=1),
        at_least=timedelta(seconds=1),
    )
    request_budget: int | None = option(
        "Most requests per hour to a bucket; looks become rarer when it is used up.",
        default=None,
        none_word="unlimited",
        at_least=1,
    )
    missing_columns: MissingColumns = option(
        "Whether a column that a file or record does not have is NULL or an error.",
        default=MissingColumns.NULL,
    )
    path_partition_keys: str = option(
        "Columns whose values stand in the path as name=value, separated by commas.",
        default="",
    )
    column_separator: str = option("CSV: what separates two fields.", default="\t")
    line_delimiter: str = option("CSV: what ends a row.", default="\n")
    enclose: str = option(
        "CSV: the character around a field that may hold separators and line ends.",
        default="",
    )
    escape: str = option(
        "CSV: the character that takes the meaning from the one behind it, in enclosed fields.",
        default="",
    )
    skip_lines: int = option(
        "CSV: lines at the beginning of a file that are no rows.", default=0, at_least=0
    )
    trim_double_quotes: bool = option(
        "CSV: whether double quotes around a field are taken away.", default=False
    )
    empty_field_as_null: bool = option(
        "CSV: whether an empty field is NULL instead of an empty text.", default=False
    )
    strip_outer_array: bool = option(
        "JSON: whether a file is one array, and every element of it a record.", default=False
    )
    json_root: str = option(
        "JSON: path of the part of a document that is the record, such as $.data.", default=""
    )
    jsonpaths: str = option(
        'JSON: paths of the columns, in their order: ["$.id", "$.customer.city"].', default=""
    )
    num_as_string: bool = option(
        "JSON: whether numbers are read as the text they are written with.", default=False
    )
    store: StoreOptions = group(StoreOptions)

    @property
    def header_lines(self) -> int:
        """How many lines of a file name its columns."""
        return self.format.header_lines

    @property
    def path_keys(self) -> tuple[str, ...]:
        """The columns whose values stand in the path."""
        return tuple(key.strip() for key in self.path_partition_keys.split(",") if key.strip())
