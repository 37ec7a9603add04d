"""The result of a statement, and what statements ask of Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.tables.scan import TableScan

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Named columns and rows, or a sentence about what was done."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    message: str = ""


class Analyst(Protocol):
    """Knows what Spark makes of a SELECT."""

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Answer what is known of the SELECT; refuse one that cannot run row by row.

        SelectError with the place where Spark names one; ``find_lookup`` is asked for every
        table that the SELECT names.
        """
        ...

    def select(
        self,
        text: str,
        *,
        scans: Mapping[str, "TableScan"],
        find_scan: Callable[[str], "TableScan"],
    ) -> "pa.Table":
        """Answer the rows of a SELECT over tables.

        ``scans`` are found by the names of views; ``find_scan`` is asked once for every other
        table that the SELECT names, with its database if that was written. SelectError with the
        place where Spark names one.
        """
        ...
