"""The result of a statement, its caller, and the interface to Spark."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.model.job import SparkQuery, StreamingQuery
from penstock.model.query import Lookup, QueryText, StreamRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.tables.scan import TableScan

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """A column of a result and its Spark SQL type."""

    name: str
    type: str = "STRING"


def result_columns(text: str) -> tuple[ResultColumn, ...]:
    """Read columns from a list such as ``name, rows BIGINT``; the default type is STRING."""
    words = (column.split() for column in text.split(","))
    return tuple(
        ResultColumn(name=first, type=" ".join(rest) or "STRING") for first, *rest in words
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Typed columns and rows, or a message about the completed change."""

    columns: tuple[ResultColumn, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    message: str = ""
    # The same rows as Arrow batches, for clients that need typed values.
    batches: "Iterable[pa.RecordBatch] | None" = field(default=None, compare=False)
    # Messages to print in addition to the rows.
    notices: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user who runs a statement."""

    user: str = ""
    roles: frozenset[str] = frozenset({"read", "write"})
    # Set by the caller to cancel the statement.
    cancel: threading.Event = field(default_factory=threading.Event, compare=False)


class Analyzer(Protocol):
    """The interface that analyses and runs SELECTs, so that control does not import Spark."""

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Return the analysed SELECT; raise SelectError if it cannot run row by row.

        The error has an offset if Spark reports one. ``find_lookup`` is called for every table
        in the SELECT.
        """
        ...

    def select(
        self,
        text: str,
        *,
        scans: Mapping[str, "TableScan"],
        find_scan: Callable[[str], "TableScan"],
    ) -> "pa.Table":
        """Return the rows of a SELECT over tables.

        ``scans`` maps the names of views to scans. ``find_scan`` is called once for every
        other table in the SELECT; the argument includes the database, if the SELECT names a
        database. Raise SelectError, with an offset if Spark reports one.
        """
        ...


class StreamAnalyzer(Protocol):
    """The interface that analyses and tries streaming queries."""

    def analyse(
        self, request: StreamRequest, *, find_lookup: Callable[[str], Lookup]
    ) -> StreamingQuery:
        """Return the analysed query; raise UserError if it cannot run as a stream.

        ``find_lookup`` is called for every static table in the query.
        """
        ...

    def try_epoch(
        self,
        query: StreamingQuery,
        *,
        time_zone: str,
        python_udfs: str,
        lookups: Sequence[Lookup],
    ) -> None:
        """Run one empty epoch in a temporary checkpoint; raise UserError if it fails."""
        ...
