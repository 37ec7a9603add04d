"""How the bytes of a record become rows."""

from dataclasses import dataclass
from enum import StrEnum


class PayloadFormat(StrEnum):
    """What a record holds."""

    CSV = "csv"
    JSON = "json"
    TEXT = "text"


class PayloadCompression(StrEnum):
    """How a record is compressed."""

    NONE = "none"
    GZIP = "gzip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """How the bytes of a record become rows."""

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
