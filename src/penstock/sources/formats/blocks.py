"""The result of every format reader: blocks of rows and bad records."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import Code, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that could not be loaded: its place, the reason, and its bytes."""

    line: int
    offset: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Consecutive records of a range: their rows, and the bad ones.

    The first line of the range is 0. ``lines`` counts all records, including blank and bad
    ones: ``lines == rows + blank + len(bad)``.
    """

    batch: pa.RecordBatch
    first_line: int
    lines: int
    blank: int = 0
    bad: tuple[BadRecord, ...] = ()
    # The line of each row, relative to the block's first line; None for 0, 1, 2, …
    row_lines: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.batch.num_rows

    def line_of(self, row: int) -> int:
        """Return the line of a row, relative to the block's first line."""
        return row if self.row_lines is None else self.row_lines[row]


def column_message(path: tuple[str, ...], reason: str) -> str:
    """Return a message that names the column and the reason."""
    return f'column "{".".join(path)}": {reason}'


class UnreadableFileError(UserError):
    """A file that violates its format; none of its rows are loaded."""

    code_default = Code.FILE_ERR
