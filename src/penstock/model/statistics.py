"""What was counted, for one epoch or over the life of a job."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters that only grow; two of them add up field by field."""

    rows_read: int = 0
    rows_loaded: int = 0
    rows_rejected: int = 0
    rows_skipped: int = 0
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
        """Whether every row that was read is accounted for."""
        return self.rows_read == self.rows_loaded + self.rows_rejected + self.rows_skipped
