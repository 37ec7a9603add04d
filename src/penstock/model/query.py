"""A SELECT that Spark runs: what it is given, and what it may look at."""

import re
from dataclasses import dataclass

from penstock.model.job import TableRef
from penstock.model.job_kinds import Properties
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryText:
    """A SELECT as Spark gets it, and the session that it runs in.

    The call of the source was replaced by the name of a view, which has these columns.
    """

    text: str
    view: str
    columns: tuple[Column, ...]
    strict: bool
    time_zone: str
    python_udfs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """A checked SELECT with everything pinned that one epoch sees."""

    query: QueryText
    lookups: tuple[Lookup, ...]
    needed: tuple[str, ...]
    reusable: bool


def output_name(at: int) -> str:
    """Answer what an output of a SELECT is called between Spark and the writer."""
    return f"c{at}"


def padded(view: str, written: str) -> str:
    """Make a name as long as what it replaces, so that positions in errors stay true."""
    blank = re.sub(r"[^\n]", " ", written)
    return view + blank.replace(" ", "", len(view))


def with_view(select: str, *, start: int, end: int, view: str) -> str:
    """Put the view's name in the place of the call; every other character keeps its place."""
    return select[:start] + padded(view, select[start:end]) + select[end:]


def query_text(
    text: str,
    *,
    view: str,
    columns: tuple[Column, ...],
    properties: Properties,
) -> QueryText:
    """Answer a SELECT with the session that a job's properties ask for."""
    return QueryText(
        text=text,
        view=view,
        columns=columns,
        strict=properties.strict,
        time_zone=properties.time_zone,
        python_udfs=properties.python_udfs,
    )
