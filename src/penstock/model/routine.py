"""What a routine load does with the records of a stream on their way into the table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumn:
    """A column of the records or, with an ``expression`` of Spark SQL, one that it computes."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProperties:
    """How records become rows; expressions are verbatim Spark SQL, None is what was not said.

    ``preceding_filter`` sees the columns of the records, ``where`` those of the table.
    """

    separator: str | None = None
    columns: tuple[LoadColumn, ...] | None = None
    preceding_filter: str | None = None
    where: str | None = None
