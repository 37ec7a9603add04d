"""Read what a routine load does with records: COLUMNS, PRECEDING FILTER and WHERE."""

from collections.abc import Iterable
from dataclasses import replace

from penstock.model.routine import LoadColumn, LoadProperties
from penstock.sql.expression import parse_expression
from penstock.sql.names import declared_name
from penstock.sql.reader import TokenReader, either

_SEPARATOR = "COLUMNS TERMINATED BY"
_COLUMNS = "COLUMNS"
_PRECEDING_FILTER = "PRECEDING FILTER"
_WHERE = "WHERE"
_COMMA = "A comma stands between COLUMNS TERMINATED BY, COLUMNS, PRECEDING FILTER and WHERE."
_APPENDS = "Rows are appended: choose them by WHERE."
_PARTITIONS = "Rows go to the partitions that their columns tell: choose them by WHERE."
_FOREIGN_CLAUSES = {
    "DELETE": ("DELETE ON", _APPENDS),
    "ORDER": ("ORDER BY", "Rows are appended in the order of the stream: leave it out."),
    "PARTITION": ("PARTITION", _PARTITIONS),
    "PARTITIONS": ("PARTITIONS", _PARTITIONS),
    "TEMPORARY": ("TEMPORARY PARTITION", _PARTITIONS),
}
_WORDS = ("COLUMNS", "PRECEDING", "WHERE", *_FOREIGN_CLAUSES)


def at_load_property(reader: TokenReader) -> bool:
    """Tell whether a clause about records comes next."""
    return reader.at_any(_WORDS)


def missing_clauses(load: LoadProperties) -> tuple[str, ...]:
    """Answer the clauses that were not given yet."""
    return tuple(clause for clause, value in _value_by_clause(load).items() if value is None)


def parse_load_properties(reader: TokenReader) -> LoadProperties:
    """Take the clauses about records, each at most once, with commas between them."""
    load = LoadProperties()
    if not at_load_property(reader):
        return load
    load = _with_clause(reader, load)
    while reader.skip_symbol(","):
        load = _with_clause(reader, load)
    if at_load_property(reader):
        clause = take_clause(reader.fork(), wanted=())
        raise reader.error(f'"," must come before {clause}', hint=_COMMA)
    return load


def take_clause(reader: TokenReader, *, wanted: Iterable[str]) -> str:
    """Take the words of a clause; ``wanted`` are those to name where there is none."""
    if reader.at_any(_FOREIGN_CLAUSES):
        construct, hint = _FOREIGN_CLAUSES[reader.look().keyword]
        raise reader.unsupported(construct, place="ROUTINE LOAD", hint=hint)
    if reader.skip("WHERE"):
        return _WHERE
    if reader.skip("PRECEDING"):
        reader.expect("FILTER", after="PRECEDING")
        return _PRECEDING_FILTER
    if not reader.skip("COLUMNS"):
        raise reader.unexpected(either(*wanted), after='","', choices=_WORDS)
    if reader.skip("TERMINATED"):
        reader.expect("BY", after="COLUMNS TERMINATED")
        return _SEPARATOR
    if not reader.at_symbol("("):
        raise reader.unexpected('TERMINATED BY or "("', after="COLUMNS")
    return _COLUMNS


def _value_by_clause(load: LoadProperties) -> dict[str, object]:
    return {
        _SEPARATOR: load.separator,
        _COLUMNS: load.columns,
        _PRECEDING_FILTER: load.preceding_filter,
        _WHERE: load.where,
    }


def _with_clause(reader: TokenReader, load: LoadProperties) -> LoadProperties:
    token = reader.look()
    clause = take_clause(reader, wanted=missing_clauses(load) or ("PROPERTIES", "FROM"))
    if clause not in missing_clauses(load):
        raise reader.error(f"{clause} must not come twice", token=token)
    if clause == _SEPARATOR:
        return replace(load, separator=_separator(reader))
    if clause == _COLUMNS:
        return replace(load, columns=_columns(reader))
    expression = parse_expression(reader, after=clause)
    if clause == _WHERE:
        return replace(load, where=expression)
    return replace(load, preceding_filter=expression)


def _separator(reader: TokenReader) -> str:
    token = reader.look()
    text = reader.expect_text("a separator", after=_SEPARATOR)
    if not text:
        raise reader.error(f"{_SEPARATOR} must not be empty", token=token)
    return text


def _columns(reader: TokenReader) -> tuple[LoadColumn, ...]:
    first = reader.take()
    if reader.at_symbol(")"):
        raise reader.error("COLUMNS must have at least one column", token=first)
    columns: list[LoadColumn] = []
    seen: set[tuple[str, bool]] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.look()
        column = _column(reader, after='","' if columns else '"("')
        computed = column.expression is not None
        # The columns of the records are a list of their own, those that are computed another.
        if (column.name.lower(), computed) in seen:
            told = "is computed twice" if computed else "is given twice"
            raise reader.error(f'column "{column.name}" {told}', token=token)
        seen.add((column.name.lower(), computed))
        columns.append(column)
    if not reader.skip_symbol(")"):
        wanted = '"=", "," or ")"' if columns[-1].expression is None else '"," or ")"'
        raise reader.unexpected(wanted, after="the column")
    return tuple(columns)


def _column(reader: TokenReader, *, after: str) -> LoadColumn:
    name = declared_name(reader, "a column name", after=after)
    if not reader.skip_symbol("="):
        return LoadColumn(name=name)
    return LoadColumn(name=name, expression=parse_expression(reader, after=f'"{name}" ='))
