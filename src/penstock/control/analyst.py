"""What statements ask of Spark: a protocol, so that control itself never reaches it."""

from collections.abc import Callable
from typing import Protocol

from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText


class Analyst(Protocol):
    """Knows what Spark makes of a SELECT."""

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Answer what is known of the SELECT; refuse one that cannot run row by row.

        SelectError with the place where Spark names one; ``find_lookup`` is asked for every
        table that the SELECT names.
        """
        ...
