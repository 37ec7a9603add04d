"""Options of text formats, and how the bytes of a record become rows."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from penstock.model.options import option
from penstock.model.schema import Column, Primitive


class PayloadFormat(StrEnum):
    """What the bytes of a record are."""

    CSV = "csv"
    JSON = "json"
    TEXT = "text"


class PayloadCompression(StrEnum):
    """How the bytes of a record are compressed."""

    NONE = "none"
    GZIP = "gzip"


# Options of CSV and JSON that files and records share: explanation and default.
_FORMAT_OPTIONS: dict[str, tuple[str, object]] = {
    "enclose": ("CSV: character around a field that may hold separators and line ends.", ""),
    "escape": ("CSV: escape character inside enclosed fields.", ""),
    "trim_double_quotes": ("CSV: whether double quotes around a field are removed.", False),
    "empty_field_as_null": (
        "CSV: whether an empty field is NULL, not an empty text.",
        False,
    ),
    "strip_outer_array": (
        "JSON: whether a file or record is one array, and each of its elements a row.",
        False,
    ),
    "json_root": ("JSON: path of the part of a document that is the row, such as $.data.", ""),
    "jsonpaths": (
        'JSON: paths of the columns, in order: ["$.id", "$.customer.city"].',
        "",
    ),
    "num_as_string": (
        "JSON: whether numbers are read as the text they have.",
        False,
    ),
}
CSV_KEYS = ("enclose", "escape", "trim_double_quotes", "empty_field_as_null")
JSON_KEYS = ("strip_outer_array", "json_root", "jsonpaths", "num_as_string")


def format_option(name: str) -> Any:  # noqa: ANN401 - As option().
    """Declare an option of CSV or JSON; both files and records have it."""
    explanation, default = _FORMAT_OPTIONS[name]
    return option(explanation, default=default)


# The only column of records that are texts.
TEXT_COLUMNS = (Column(name="value", type=Primitive.STRING),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """How the bytes of a record become rows: one, or more if it has several lines."""

    # All lines of a record are rows.
    line_delimiter: ClassVar[str] = "\n"
    skip_lines: ClassVar[int] = 0
    header_lines: ClassVar[int] = 0

    format: PayloadFormat
    column_separator: str = "\t"
    enclose: str = ""
    escape: str = ""
    trim_double_quotes: bool = False
    empty_field_as_null: bool = False
    strip_outer_array: bool = False
    json_root: str = ""
    jsonpaths: str = ""
    num_as_string: bool = False
    compress_type: PayloadCompression = PayloadCompression.NONE
