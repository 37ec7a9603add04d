"""Decide what a SELECT statement reads from."""

from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import Statement
from penstock.sql.table_select import parse_table_query
from penstock.sql.view_select import at_view, parse_view_query

QUERY_WORDS = words("FROM SELECT VALUES WITH")


def at_query(reader: TokenReader) -> bool:
    """Tell whether a query comes next."""
    return reader.at_any(QUERY_WORDS) or reader.at_symbol("(")


def parse_query(reader: TokenReader) -> Statement:
    """Take a query: from jobs(…) or tasks(…), which need no Spark, or over tables."""
    if reader.at("SELECT") and at_view(reader):
        return parse_view_query(reader)
    return parse_table_query(reader)
