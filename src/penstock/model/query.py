"""A SELECT that Spark runs: its text, its session and the tables that it joins with."""

import re
from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.model.job import StreamView, TableRef
from penstock.model.job_kinds import OutputMode, Properties
from penstock.model.schema import Column
from penstock.model.secrets import Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupFile:
    """A data file of a table that a SELECT joins with."""

    path: str
    partition_values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A table that a SELECT joins with, at one version."""

    table: TableRef
    version: int
    size_bytes: int
    columns: tuple[Column, ...]
    files: tuple[LookupFile, ...]
    access: Sealed = Sealed()

    @property
    def joined_table(self) -> TableRef:
        """The table with its columns, as a query stores it."""
        return replace(self.table, columns=self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryText:
    """A SELECT over a view with these columns, and the settings of its Spark session."""

    text: str
    view: str
    columns: tuple[Column, ...]
    strict: bool
    time_zone: str
    python_udfs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """A checked SELECT with the lookups of one epoch, each at one version."""

    query: QueryText
    lookups: tuple[Lookup, ...]
    needed: tuple[str, ...]
    reusable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """A streaming query to be analysed; ``needed`` of its views is still empty."""

    text: str
    views: tuple[StreamView, ...]
    # The requested output mode; None: chosen by the query.
    output: OutputMode | None
    state_ttl: timedelta | None
    parallelism: int
    time_zone: str
    python_udfs: str


def output_name(at: int) -> str:
    """Return the name that Spark and the writer use for an output of a SELECT."""
    return f"c{at}"


def with_view(select: str, *, start: int, end: int, view: str) -> str:
    """Replace the source's call with the name of a view."""
    # Spaces pad the name to the length of the call, so positions in errors stay correct.
    blank = re.sub(r"[^\n]", " ", select[start:end])
    return select[:start] + view + blank.replace(" ", "", len(view)) + select[end:]


def query_text(
    text: str,
    *,
    view: str,
    columns: tuple[Column, ...],
    properties: Properties,
) -> QueryText:
    """Return a SELECT with the session settings of a job's properties."""
    return QueryText(
        text=text,
        view=view,
        columns=columns,
        strict=properties.strict,
        time_zone=properties.time_zone,
        python_udfs=properties.python_udfs,
    )
