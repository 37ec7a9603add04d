"""What a routine load does to the records of its source before they are rows of its table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumn:
    """A column of COLUMNS: one of the source, or one that an expression makes."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProperties:
    """The clauses of a routine load, expressions as written; None where there is no clause."""

    separator: str | None = None
    columns: tuple[LoadColumn, ...] | None = None
    preceding_filter: str | None = None
    where: str | None = None
