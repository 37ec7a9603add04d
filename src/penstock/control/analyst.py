"""What statements ask of Spark: a protocol, so that control itself never reaches it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.tables.scan import TableScan


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
