"""Decide what a SELECT statement reads from."""

from penstock.sql.reader import TokenReader
from penstock.sql.statements import Statement
from penstock.sql.view_select import at_view, parse_view_query

_HINT = "Tables are Delta tables: read them with Spark, DuckDB or any other reader."


def parse_query(reader: TokenReader) -> Statement:
    """Take a SELECT; so far only one that reads from jobs(…) or tasks(…)."""
    if at_view(reader):
        return parse_view_query(reader)
    raise reader.unsupported("SELECT", hint=_HINT)
