"""How the bytes of a stream's record become rows."""

from dataclasses import dataclass
from enum import StrEnum

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


# The only column of records that are texts.
TEXT_COLUMNS = (Column(name="value", type=Primitive.STRING),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """How the bytes of a record become rows: one, or more if it has several lines."""

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

    @property
    def line_delimiter(self) -> str:
        """What ends a row, where a record has several."""
        return "\n"

    @property
    def skip_lines(self) -> int:
        """How many lines of a record are no rows."""
        return 0

    @property
    def header_lines(self) -> int:
        """How many lines of a record name its columns."""
        return 0
