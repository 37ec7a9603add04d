"""What was counted, for one epoch or over the life of a job."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters that only grow; two of them add up field by field."""

    rows_read: int = 0
    rows_skipped: int = 0
    rows_parsed: int = 0
    rows_produced: int = 0
    rows_loaded: int = 0
    # By the reader, and by the writer because they did not fit the table.
    rows_rejected: int = 0
    rows_misfit: int = 0
    # Of the rejected ones, those that belong to another shard.
    rows_foreign: int = 0
    records_read: int = 0
    files_read: int = 0
    bytes_read: int = 0
    files_written: int = 0
    bytes_written: int = 0

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def balanced(self) -> bool:
        """Whether every row that was read or produced is accounted for."""
        unreadable = self.rows_rejected - self.rows_misfit
        return (
            self.rows_read == self.rows_parsed + unreadable + self.rows_skipped
            and self.rows_produced == self.rows_loaded + self.rows_misfit
        )

    @property
    def rows_unselected(self) -> int:
        """Rows that a WHERE dropped; only of a SELECT that makes at most one row of one."""
        return self.rows_parsed - self.rows_produced

    @property
    def filtered_ratio(self) -> float:
        """The share of rejected rows among those that were to be loaded."""
        wanted = self.rows_loaded + self.rows_rejected
        return self.rows_rejected / wanted if wanted else 0.0
