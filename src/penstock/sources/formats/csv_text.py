"""The layout of CSV text: separators, quotes, fields of one record.

Arrow takes a lone carriage return for a line end, drops a byte order mark before any block,
escapes also outside of enclosed fields, goes on behind their closing character, and knows
only separators of one byte. So a block is screened first, as a whole.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from penstock.arrow.casts import shown
from penstock.errors import Code, UserError
from penstock.sources.formats.lines import BYTE_ORDER_MARK

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


# None is NULL.
Fields: TypeAlias = list[bytes | None]

_NULL = b"\\N"
_DOUBLE_QUOTE = b'"'


class BrokenRecordError(ValueError):
    """A record that cannot be cut into fields; its text says why, in words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosing:
    """Finds out where enclosed fields end."""

    separator: bytes
    enclose: bytes
    # The inside of an enclosed field, up to what closes it.
    inside: re.Pattern[bytes]
    # What stands for one character inside.
    written: re.Pattern[bytes]

    def open_behind(self, line: bytes, *, opened: bool) -> bool:
        """Say whether a field is open behind a line, given whether one was open before it."""
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
        """Give the place of the character that closes a field; the line's end if none does."""
        found = self.inside.match(line, at)
        end = found.end() if found else at
        return end if line.startswith(self.enclose, end) else len(line)

    def content(self, inside: bytes) -> bytes:
        """Give the characters that the inside of an enclosed field stands for."""
        return self.written.sub(rb"\1\2", inside)


def enclosing(layout: CsvLayout) -> Enclosing | None:
    """Give what finds enclosed fields; None if the layout has none."""
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


def field_cutter(layout: CsvLayout) -> Callable[[bytes], Fields]:
    """Give the function that cuts a record, without its line end, into fields."""
    enclosed = enclosing(layout)
    plain = _plain_cutter(layout)
    if enclosed is None:
        return plain
    plain_field = _plain_field(layout)

    def cut(record: bytes) -> Fields:
        if enclosed.enclose not in record:
            return plain(record)
        return _enclosed_fields(record, enclosed, plain_field=plain_field)

    return cut


def _plain_cutter(layout: CsvLayout) -> Callable[[bytes], Fields]:
    separator, trimmed = layout.separator, layout.trim_double_quotes
    plain_field = _plain_field(layout)

    def cut(record: bytes) -> Fields:
        fields = record.split(separator)
        if _NULL in record or (trimmed and _DOUBLE_QUOTE in record):
            return [plain_field(field) for field in fields]
        return list(fields)

    return cut


def _plain_field(layout: CsvLayout) -> Callable[[bytes], bytes | None]:
    trimmed = layout.trim_double_quotes

    def read(field: bytes) -> bytes | None:
        if field == _NULL:
            return None
        quoted = (
            len(field) > 1 and field.startswith(_DOUBLE_QUOTE) and field.endswith(_DOUBLE_QUOTE)
        )
        return field[1:-1] if trimmed and quoted else field

    return read


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
            f"field {field} is enclosed, but goes on behind the closing character"
        )


_NEWLINE = b"\n"
_COMMON_ENDINGS = (b"\n", b"\r\n")
_ASCII_MAX = 127
# One of them stands for a separator that Arrow does not take.
_RARE_SEPARATORS = (b"\x1f", b"\x1e", b"\x1c", b"\x02")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonForm:
    """A block as Arrow reads it: lines end with a newline, and a separator is one byte."""

    data: bytes
    separator: bytes
    # None where no field is enclosed.
    enclose: bytes | None
    # Whether there are double quotes to take away.
    trimmed: bool

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.data.count(_NEWLINE) + (not self.data.endswith(_NEWLINE))


def common_form(data: bytes, layout: CsvLayout) -> CommonForm | None:
    """Bring a block into Arrow's form; None if it would not be read alike."""
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
    # What looks like a separator or a line end may be text, so nothing can be replaced; nor
    # can double quotes be taken from those fields alone that are not enclosed.
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
    """Say whether there is anything that Arrow takes for a line end."""
    return _NEWLINE in data or _RETURN in data


def _lines_end_alike(data: bytes, layout: CsvLayout) -> bool:
    """Say whether lines end for Arrow where they end for the layout."""
    if layout.ending == _NEWLINE and _RETURN not in data:
        return True
    pairs = data.count(b"\r\n")
    if layout.ending == _NEWLINE:
        return layout.return_dropped and data.count(_RETURN) == pairs
    return data.count(_RETURN) == pairs == data.count(_NEWLINE)


def _common_separator(data: bytes, separator: bytes) -> bytes | None:
    """Give the separator itself if Arrow takes it, else one that is not in the data."""
    if len(separator) == 1 and 0 < separator[0] <= _ASCII_MAX:
        return separator
    return next((rare for rare in _RARE_SEPARATORS if rare not in data), None)


def _plainly_enclosed(data: bytes, *, separator: bytes, enclose: bytes) -> bool:
    """Say whether enclosing characters stand only around fields, or doubled inside of them."""
    octets = np.frombuffer(b"\n%b\n" % data, np.uint8)
    marks = np.flatnonzero(octets == enclose[0])
    if len(marks) % 2:
        return False
    opening, closing = marks[::2], marks[1::2]
    before, behind = octets[opening - 1], octets[closing + 1]
    begins = (before == separator[0]) | (before == _NEWLINE[0])
    ends = (behind == separator[0]) | (behind == _NEWLINE[0]) | (behind == _RETURN[0])
    # A field is closed before the next one is opened, or both characters are one doubled.
    doubled = opening[1:] == closing[:-1] + 1
    return bool(
        begins[0] and ends[-1] and (begins[1:] | doubled).all() and (ends[:-1] | doubled).all()
    )
