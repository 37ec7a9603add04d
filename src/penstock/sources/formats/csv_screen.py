"""Find the blocks of CSV lines that Arrow reads as we do, and bring them into its form.

Arrow takes a lone carriage return for a line end, drops a byte order mark before any block,
escapes also outside of enclosed fields, goes on behind their closing character, and knows
only separators of one byte. So a block is screened first, as a whole.
"""

from dataclasses import dataclass

import numpy as np

from penstock.sources.formats.csv_layout import CsvLayout
from penstock.sources.formats.lines import BYTE_ORDER_MARK

_NEWLINE, _RETURN = b"\n", b"\r"
_COMMON_ENDINGS = (b"\n", b"\r\n")
_ASCII_MAX = 127
_DOUBLE_QUOTE = b'"'
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
