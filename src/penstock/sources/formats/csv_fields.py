"""Cut one CSV record into its fields, and say whether a line leaves an enclosed field open."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.sources.formats.csv_layout import CsvLayout

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
