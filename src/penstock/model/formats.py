"""Options of text formats, and the format of a record's bytes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from penstock.model.options import option
from penstock.model.schema import Column, Primitive


class PayloadFormat(StrEnum):
    """Format of a record's bytes."""

    CSV = "csv"
    JSON = "json"
    TEXT = "text"


class PayloadCompression(StrEnum):
    """Compression of a record's bytes."""

    NONE = "none"
    GZIP = "gzip"


# Options of CSV and JSON for both files and records: explanation and default.
_FORMAT_OPTIONS: dict[str, tuple[str, object]] = {
    "enclose": (
        "CSV: quote character around fields that can contain separators or line breaks.",
        "",
    ),
    "escape": ("CSV: escape character inside enclosed fields.", ""),
    "trim_double_quotes": ("CSV: whether double quotes around a field are removed.", False),
    "empty_field_as_null": (
        "CSV: whether an empty field is NULL instead of an empty string.",
        False,
    ),
    "strip_outer_array": (
        "JSON: whether each file or record is one array whose elements are the rows.",
        False,
    ),
    "json_root": ("JSON: path of the element to load from each document, such as $.data.", ""),
    "jsonpaths": (
        'JSON: paths of the columns, in order: ["$.id", "$.customer.city"].',
        "",
    ),
    "num_as_string": (
        "JSON: whether numbers are read as strings, with all digits unchanged.",
        False,
    ),
}
CSV_KEYS = ("enclose", "escape", "trim_double_quotes", "empty_field_as_null")
JSON_KEYS = ("strip_outer_array", "json_root", "jsonpaths", "num_as_string")


def format_option(name: str) -> Any:  # noqa: ANN401 - As option().
    """Declare an option of CSV or JSON that applies to both files and records."""
    explanation, default = _FORMAT_OPTIONS[name]
    return option(explanation, default=default)


# The only column of records in text format.
TEXT_COLUMNS = (Column(name="value", type=Primitive.STRING),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Format of a record's bytes; a record with several lines becomes several rows."""

    # Every line of a record is a row.
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
