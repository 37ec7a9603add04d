"""What every format reads: blocks of rows, and the records that gave none."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import Code, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that could not be loaded: where it is, why, and what it holds."""

    line: int
    offset: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Some records of a range: the rows read, and the records that gave none.

    Lines are counted from the range's first own line, which is 0. ``lines`` counts every
    record, also blank and bad ones: ``lines == rows + blank + len(bad)``.
    """

    batch: pa.RecordBatch
    first_line: int
    lines: int
    blank: int = 0
    bad: tuple[BadRecord, ...] = ()
    # The lines of the rows, counted from the block's first, where they are not 0, 1, 2, …
    row_lines: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Number of rows read."""
        return self.batch.num_rows

    def line_of(self, row: int) -> int:
        """Give the line of a row, counted from the block's first."""
        return row if self.row_lines is None else self.row_lines[row]


def column_message(path: tuple[str, ...], reason: str) -> str:
    """Say which column is at fault, and why."""
    return f'column "{".".join(path)}": {reason}'


class UnreadableFileError(UserError):
    """A file that is not what its format says, from some byte on; nothing of it is loaded."""

    code_default = Code.FILE_ERR
