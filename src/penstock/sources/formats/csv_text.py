"""The layout of CSV text: separators, quotes, fields of one record.

Arrow's parser differs from this dialect in five points. Arrow ends a line at a lone carriage
return. Arrow removes a byte order mark at the start of every block. Arrow resolves escapes
outside enclosed fields. Arrow continues a field after the closing character. Arrow supports
only separators of one byte. So each block is checked before Arrow parses it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from penstock.arrow.casts import shown
from penstock.errors import Code, UserError
from penstock.model.formats import Payload
from penstock.sources.files.kind import FilesOptions
from penstock.sources.formats.lines import BYTE_ORDER_MARK

_WRITTEN_OUT = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([tnr]))")
_CHARACTER_BY_LETTER = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_RETURN = b"\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    """The separators of fields and records, and the quoting of fields."""

    separator: bytes = b"\t"
    ending: bytes = b"\n"
    enclose: bytes | None = None
    # Applies in enclosed fields only.
    escape: bytes | None = None
    header_lines: int = 0
    skip_lines: int = 0
    trim_double_quotes: bool = False
    empty_field_as_null: bool = False

    @property
    def strips_carriage_return(self) -> bool:
        """Whether a carriage return at the end of a record is part of the line end."""
        marks = self.separator + (self.enclose or b"") + (self.escape or b"")
        return self.ending == b"\n" and _RETURN not in marks


def csv_layout(options: FilesOptions | Payload) -> CsvLayout:
    """Return the layout of a source's options; raise ``UserError`` if they are ambiguous."""
    separator = _delimiter("column_separator", options.column_separator)
    ending = _delimiter("line_delimiter", options.line_delimiter)
    _require_distinct(options, separator=separator, ending=ending)
    enclose = _mark("enclose", options.enclose, separator=separator, ending=ending)
    escape = _mark("escape", options.escape, separator=separator, ending=ending)
    return CsvLayout(
        separator=separator,
        ending=ending,
        enclose=enclose,
        # A doubled enclose character means one such character even without an escape.
        escape=None if escape == enclose else escape,
        header_lines=options.header_lines,
        skip_lines=options.skip_lines,
        trim_double_quotes=options.trim_double_quotes,
        empty_field_as_null=options.empty_field_as_null,
    )


def csv_splittable(layout: CsvLayout) -> bool:
    """Return whether a range of a file can be read without the bytes before it."""
    # Whether a line end is inside an enclosed field depends on all bytes before it.
    return layout.enclose is None


def _delimiter(name: str, text: str) -> bytes:
    delimiter = _WRITTEN_OUT.sub(_character, text.encode())
    if not delimiter:
        raise _refusal(
            f'option "{name}" must not be empty',
            hint=f"""Write a character or its code: "{name}" = "\\x01".""",
        )
    return delimiter


def _character(written: re.Match[bytes]) -> bytes:
    code, letter = written.groups()
    return bytes.fromhex(code.decode()) if code else _CHARACTER_BY_LETTER[letter]


def _require_distinct(
    options: FilesOptions | Payload, *, separator: bytes, ending: bytes
) -> None:
    if any(ending.endswith(ending[:size]) for size in range(1, len(ending))):
        raise _refusal(
            f'option "line_delimiter" must not start and end with the same characters, as'
            f" {shown(options.line_delimiter)} does",
            hint="The end of a row would be ambiguous. Choose another delimiter.",
        )
    if separator in ending or ending in separator:
        raise _refusal(
            f'option "line_delimiter" {shown(options.line_delimiter)} and option'
            f' "column_separator" {shown(options.column_separator)} must not contain'
            " each other",
            hint="Choose a delimiter and a separator without common characters.",
        )


def _mark(name: str, text: str, *, separator: bytes, ending: bytes) -> bytes | None:
    if not text:
        return None
    if len(text) != 1 or not text.isascii():
        raise _refusal(
            f'option "{name}" must be one ASCII character, not {shown(text)}',
            hint="Remove the option, or write one character, such as 'enclose' = '\"'.",
        )
    mark = text.encode()
    for other, delimiter in (("column_separator", separator), ("line_delimiter", ending)):
        if mark in delimiter:
            raise _refusal(
                f'option "{name}" {shown(text)} must not occur in option "{other}"',
                hint="Choose a character that is in neither separator nor delimiter.",
            )
    return mark


def _refusal(message: str, *, hint: str) -> UserError:
    return UserError(message, code=Code.OPTION_ERR, hint=hint)


# None means NULL.
Fields: TypeAlias = list[bytes | None]

_NULL = b"\\N"
_DOUBLE_QUOTE = b'"'


class BrokenRecordError(ValueError):
    """A record that cannot be split into fields; the message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosing:
    """Finds the ends of enclosed fields."""

    separator: bytes
    enclose: bytes
    # Matches the content of an enclosed field, up to the closing character.
    inside: re.Pattern[bytes]
    # Matches a doubled or escaped character in the content.
    written: re.Pattern[bytes]

    def open_after(self, line: bytes, *, opened: bool) -> bool:
        """Return whether a field is open after a line; ``opened`` is the state before it."""
        if self.enclose not in line:
            return opened
        at = 0
        while True:
            if opened or line.startswith(self.enclose, at):
                at = self.closing(line, at if opened else at + 1)
                if at >= len(line):
                    return True
            at = line.find(self.separator, at)
            if at < 0:
                return False
            at, opened = at + len(self.separator), False

    def closing(self, line: bytes, at: int) -> int:
        """Return the offset of the closing character; the line's length if there is none."""
        found = self.inside.match(line, at)
        end = found.end() if found else at
        return end if line.startswith(self.enclose, end) else len(line)

    def content(self, inside: bytes) -> bytes:
        """Return the content of an enclosed field, with escapes and doubling resolved."""
        return self.written.sub(rb"\1\2", inside)


def enclosing(layout: CsvLayout) -> Enclosing | None:
    """Return the finder of enclosed fields; None if the layout has none."""
    if layout.enclose is None:
        return None
    mark = re.escape(layout.enclose)
    escape = b"" if layout.escape is None else re.escape(layout.escape)
    escaped = escape + b"(.)" if escape else b"(?!)()"
    return Enclosing(
        separator=layout.separator,
        enclose=layout.enclose,
        inside=re.compile(
            b"(?:[^%b%b]++|%b%b|%b)*+" % (mark, escape, mark, mark, escaped), re.DOTALL
        ),
        written=re.compile(b"(%b)%b|%b" % (mark, mark, escaped), re.DOTALL),
    )


def field_splitter(layout: CsvLayout) -> Callable[[bytes], Fields]:
    """Return the function that splits a record, without its line end, into fields."""
    enclosed = enclosing(layout)
    separator, trimmed = layout.separator, layout.trim_double_quotes

    def plain_field(field: bytes) -> bytes | None:
        if field == _NULL:
            return None
        quoted = (
            len(field) > 1 and field.startswith(_DOUBLE_QUOTE) and field.endswith(_DOUBLE_QUOTE)
        )
        return field[1:-1] if trimmed and quoted else field

    def split_fields(record: bytes) -> Fields:
        if enclosed is not None and enclosed.enclose in record:
            return _enclosed_fields(record, enclosed, plain_field=plain_field)
        fields = record.split(separator)
        if _NULL in record or (trimmed and _DOUBLE_QUOTE in record):
            return [plain_field(field) for field in fields]
        return list(fields)

    return split_fields


def _enclosed_fields(
    record: bytes, enclosed: Enclosing, *, plain_field: Callable[[bytes], bytes | None]
) -> Fields:
    fields: Fields = []
    at = 0
    while True:
        if record.startswith(enclosed.enclose, at):
            closing = enclosed.closing(record, at + 1)
            fields.append(enclosed.content(record[at + 1 : closing]))
            end = closing + 1
            _require_end(record, end, enclosed, field=len(fields))
        else:
            found = record.find(enclosed.separator, at)
            end = found if found >= 0 else len(record)
            fields.append(plain_field(record[at:end]))
        if end >= len(record):
            return fields
        at = end + len(enclosed.separator)


def _require_end(record: bytes, end: int, enclosed: Enclosing, *, field: int) -> None:
    if end > len(record):
        raise BrokenRecordError(f"field {field} is enclosed, but not closed")
    if end < len(record) and not record.startswith(enclosed.separator, end):
        raise BrokenRecordError(
            f"field {field} is enclosed, but continues after the closing character"
        )


_NEWLINE = b"\n"
_COMMON_ENDINGS = (b"\n", b"\r\n")
_ASCII_MAX = 127
# Replacements for a separator that Arrow does not support.
_RARE_SEPARATORS = (b"\x1f", b"\x1e", b"\x1c", b"\x02")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonForm:
    """A block that Arrow can parse: newlines end lines, and the separator is one byte."""

    data: bytes
    separator: bytes
    # None if no field is enclosed.
    enclose: bytes | None
    # Whether double quotes around fields must be removed.
    trimmed: bool

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.data.count(_NEWLINE) + (not self.data.endswith(_NEWLINE))


def common_form(data: bytes, layout: CsvLayout) -> CommonForm | None:
    """Convert a block to Arrow's form; return None if Arrow would read it differently."""
    if data.startswith(BYTE_ORDER_MARK) or _ends_lines(layout.separator):
        return None
    if layout.enclose is not None and layout.enclose in data:
        return _enclosed_form(data, layout, enclose=layout.enclose)
    lines = data
    if layout.ending not in _COMMON_ENDINGS:
        if _ends_lines(data):
            return None
        lines = data.replace(layout.ending, _NEWLINE)
    elif not _lines_end_alike(data, layout):
        return None
    separator = _common_separator(lines, layout.separator)
    if separator is None:
        return None
    return CommonForm(
        data=lines.replace(layout.separator, separator),
        separator=separator,
        enclose=None,
        trimmed=layout.trim_double_quotes and _DOUBLE_QUOTE in data,
    )


def _enclosed_form(data: bytes, layout: CsvLayout, *, enclose: bytes) -> CommonForm | None:
    # Separators and line ends can be inside fields, so they cannot be replaced. Arrow does not
    # return which fields were enclosed. So quotes cannot be removed from the other fields only.
    fits = (
        layout.ending in _COMMON_ENDINGS
        and _common_separator(b"", layout.separator) == layout.separator
        and not (layout.escape is not None and layout.escape in data)
        and not (layout.trim_double_quotes and enclose != _DOUBLE_QUOTE)
        and _lines_end_alike(data, layout)
        and _plainly_enclosed(data, separator=layout.separator, enclose=enclose)
    )
    if not fits:
        return None
    return CommonForm(data=data, separator=layout.separator, enclose=enclose, trimmed=False)


def _ends_lines(data: bytes) -> bool:
    """Return whether the data contains a line end of Arrow's parser."""
    return _NEWLINE in data or _RETURN in data


def _lines_end_alike(data: bytes, layout: CsvLayout) -> bool:
    """Return whether lines end at the same offsets for Arrow and for the layout."""
    if layout.ending == _NEWLINE and _RETURN not in data:
        return True
    pairs = data.count(b"\r\n")
    if layout.ending == _NEWLINE:
        return layout.strips_carriage_return and data.count(_RETURN) == pairs
    return data.count(_RETURN) == pairs == data.count(_NEWLINE)


def _common_separator(data: bytes, separator: bytes) -> bytes | None:
    """Return the separator if Arrow supports it, else a byte that is not in the data."""
    if len(separator) == 1 and 0 < separator[0] <= _ASCII_MAX:
        return separator
    return next((rare for rare in _RARE_SEPARATORS if rare not in data), None)


def _plainly_enclosed(data: bytes, *, separator: bytes, enclose: bytes) -> bool:
    """Return whether every enclosing character is at the edge of a field or doubled."""
    octets = np.frombuffer(b"\n%b\n" % data, np.uint8)
    marks = np.flatnonzero(octets == enclose[0])
    if len(marks) % 2:
        return False
    opening, closing = marks[::2], marks[1::2]
    before, after = octets[opening - 1], octets[closing + 1]
    starts = (before == separator[0]) | (before == _NEWLINE[0])
    ends = (after == separator[0]) | (after == _NEWLINE[0]) | (after == _RETURN[0])
    # A closing mark and the next opening mark are one doubled mark, or surround a field border.
    doubled = opening[1:] == closing[:-1] + 1
    return bool(
        starts[0] and ends[-1] and (starts[1:] | doubled).all() and (ends[:-1] | doubled).all()
    )
