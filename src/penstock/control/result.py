"""The result of a statement, who asked for it, and what statements ask of Spark."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.tables.scan import TableScan

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """A column of a result, with its type as Spark SQL names it."""

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
    """Typed columns and rows, or a sentence about what was done."""

    columns: tuple[ResultColumn, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    message: str = ""
    # The same rows as Arrow has them, for clients that want values and not cells.
    batches: "Iterable[pa.RecordBatch] | None" = field(default=None, compare=False)
    # Sentences beside the rows.
    notices: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who runs a statement."""

    user: str = ""
    roles: frozenset[str] = frozenset({"read", "write"})
    # Set by the caller to give up waiting.
    cancel: threading.Event = field(default_factory=threading.Event, compare=False)


class Analyst(Protocol):
    """Analyses and runs SELECTs; Spark in the product, so that control never imports it."""

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Return what is known of a SELECT; refuse one that cannot run row by row.

        Raises SelectError with the place where Spark names one. ``find_lookup`` is called for
        every table that the SELECT names.
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

        ``scans`` are found by the names of views. ``find_scan`` is called once for every other
        table that the SELECT names, with its database if that was written. Raises SelectError
        with the place where Spark names one.
        """
        ...
