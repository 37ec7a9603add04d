"""How bytes of CSV become records and fields, worked out from a job's options."""

import re
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import Code, UserError
from penstock.storage.casts import shown

_WRITTEN_OUT = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([tnr]))")
_CHARACTER_BY_LETTER = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_RETURN = b"\r"


class CsvOptions(Protocol):
    """What a source says of its CSV: the options of files, or of a stream's payloads."""

    @property
    def column_separator(self) -> str: ...
    @property
    def line_delimiter(self) -> str: ...
    @property
    def enclose(self) -> str: ...
    @property
    def escape(self) -> str: ...
    @property
    def header_lines(self) -> int: ...
    @property
    def skip_lines(self) -> int: ...
    @property
    def trim_double_quotes(self) -> bool: ...
    @property
    def empty_field_as_null(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    """What separates fields and records, and what a field may look like."""

    separator: bytes = b"\t"
    ending: bytes = b"\n"
    enclose: bytes | None = None
    # Only in enclosed fields.
    escape: bytes | None = None
    header_lines: int = 0
    skip_lines: int = 0
    trim_double_quotes: bool = False
    empty_field_as_null: bool = False

    @property
    def return_dropped(self) -> bool:
        """Whether a carriage return at the end of a record belongs to the line end."""
        marks = self.separator + (self.enclose or b"") + (self.escape or b"")
        return self.ending == b"\n" and _RETURN not in marks


def csv_layout(options: CsvOptions) -> CsvLayout:
    """Give the layout that the options of a source describe; refuse one that is ambiguous."""
    separator = _delimiter("column_separator", options.column_separator)
    ending = _delimiter("line_delimiter", options.line_delimiter)
    _require_distinct(options, separator=separator, ending=ending)
    enclose = _mark("enclose", options.enclose, separator=separator, ending=ending)
    escape = _mark("escape", options.escape, separator=separator, ending=ending)
    return CsvLayout(
        separator=separator,
        ending=ending,
        enclose=enclose,
        # A doubled enclose character is one in any case.
        escape=None if escape == enclose else escape,
        header_lines=options.header_lines,
        skip_lines=options.skip_lines,
        trim_double_quotes=options.trim_double_quotes,
        empty_field_as_null=options.empty_field_as_null,
    )


def csv_splittable(layout: CsvLayout) -> bool:
    """Say whether a range of a file can be read without what stands before it."""
    # Whether a line end is inside an enclosed field is known only from the file's beginning.
    return layout.enclose is None


def _delimiter(name: str, text: str) -> bytes:
    delimiter = _WRITTEN_OUT.sub(_character, text.encode())
    if not delimiter:
        raise _refusal(
            f'option "{name}" must not be empty',
            hint=f"""Write it as a character or as its code: "{name}" = "\\x01".""",
        )
    return delimiter


def _character(written: re.Match[bytes]) -> bytes:
    code, letter = written.groups()
    return bytes.fromhex(code.decode()) if code else _CHARACTER_BY_LETTER[letter]


def _require_distinct(options: CsvOptions, *, separator: bytes, ending: bytes) -> None:
    if _overlaps_itself(ending):
        raise _refusal(
            f'option "line_delimiter" must not begin as it ends, as'
            f" {shown(options.line_delimiter)} does",
            hint="Where a row ends would be ambiguous. Choose another delimiter.",
        )
    if separator in ending or ending in separator:
        raise _refusal(
            f'option "line_delimiter" {shown(options.line_delimiter)} and option'
            f' "column_separator" {shown(options.column_separator)} must not contain'
            " one another",
            hint="Choose a delimiter that occurs in no separator.",
        )


def _overlaps_itself(ending: bytes) -> bool:
    return any(ending.endswith(ending[:size]) for size in range(1, len(ending)))


def _mark(name: str, text: str, *, separator: bytes, ending: bytes) -> bytes | None:
    if not text:
        return None
    if len(text) != 1 or not text.isascii():
        raise _refusal(
            f'option "{name}" must be one ASCII character, not {shown(text)}',
            hint="Leave the option away, or write it as in 'enclose' = '\"'.",
        )
    mark = text.encode()
    for other, delimiter in (("column_separator", separator), ("line_delimiter", ending)):
        if mark in delimiter:
            raise _refusal(
                f'option "{name}" {shown(text)} must not occur in option "{other}"',
                hint="Choose a character that separates nothing.",
            )
    return mark


def _refusal(message: str, *, hint: str) -> UserError:
    return UserError(message, code=Code.OPTION_ERR, hint=hint)
