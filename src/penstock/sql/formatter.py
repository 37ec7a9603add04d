"""Format statements so that the parser reads the same statement back."""

from collections.abc import Iterable, Iterator

from penstock.model.job import LoadColumn, LoadProperties
from penstock.model.schema import column_sql
from penstock.model.secrets import SecretReference, reference_of, reference_text
from penstock.model.text import quoted_name, quoted_text
from penstock.sql.names import is_secret_name
from penstock.sql.statements import (
    CreateFlow,
    CreateJob,
    CreateStreamingTable,
    CreateTable,
    Insert,
    Properties,
    RoutineBody,
    StreamColumn,
    Watermark,
)

_MS_BY_UNIT = {
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}


def format_statement(
    statement: CreateTable | CreateJob | CreateStreamingTable | CreateFlow,
) -> str:
    """Return the text of a statement, on several lines, without a semicolon."""
    if isinstance(statement, CreateTable):
        return _create_table(statement)
    if isinstance(statement, CreateStreamingTable):
        return _create_streaming_table(statement)
    if isinstance(statement, CreateFlow):
        return _create_flow(statement)
    body = statement.body
    if isinstance(body, RoutineBody):
        return _create_routine_load(statement, body)
    return _create_job(statement, body)


def format_interval(length_ms: int) -> str:
    """Format an interval in the largest unit that divides it: 5 minutes, 90 seconds, 1 day."""
    unit = next(unit for unit, unit_ms in _MS_BY_UNIT.items() if length_ms % unit_ms == 0)
    number = length_ms // _MS_BY_UNIT[unit]
    return f"{number} {unit}" + ("" if number == 1 else "s")


def _create_table(table: CreateTable) -> str:
    clause = " IF NOT EXISTS" if table.if_not_exists else ""
    elements = [column_sql(column) for column in table.columns]
    if table.watermark is not None:
        elements.append(_watermark(table.watermark))
    head = f"CREATE TABLE{clause} {quoted_name(table.name)} {_listed(elements)}"
    return "\n".join([head, *_table_clauses(table)])


def _watermark(watermark: Watermark) -> str:
    column = quoted_name(watermark.column)
    if not watermark.delay_ms:
        return f"WATERMARK FOR {column}"
    delay = format_interval(watermark.delay_ms).upper()
    return f"WATERMARK FOR {column} AS {column} - INTERVAL {delay}"


def _table_clauses(table: CreateTable | CreateStreamingTable) -> Iterator[str]:
    yield "USING DELTA"
    if table.partition_by:
        yield f"PARTITIONED BY ({', '.join(map(quoted_name, table.partition_by))})"
    if table.comment:
        yield f"COMMENT {quoted_text(table.comment)}"
    if table.location is not None:
        yield f"LOCATION {quoted_text(table.location)}"


def _create_streaming_table(table: CreateStreamingTable) -> str:
    refresh = " OR REFRESH" if table.or_refresh else ""
    clause = " IF NOT EXISTS" if table.if_not_exists else ""
    columns = f" {_listed(map(_stream_column, table.columns))}" if table.columns else ""
    head = f"CREATE{refresh} STREAMING TABLE{clause} {quoted_name(table.name)}{columns}"
    lines = [head, *_table_clauses(table)]
    if table.options:
        lines.append(f"WITH {_properties(table.options)}")
    return "\n".join([*lines, "AS", table.query.text])


def _stream_column(column: StreamColumn) -> str:
    parts = [quoted_name(column.name)]
    if column.type is not None:
        parts.append(column.type.sql)
    if not column.nullable:
        parts.append("NOT NULL")
    if column.comment:
        parts.append(f"COMMENT {quoted_text(column.comment)}")
    return " ".join(parts)


def _create_flow(flow: CreateFlow) -> str:
    # Without backquotes, AS before WITH would start the query.
    name = "`as`" if flow.name == "as" else quoted_name(flow.name)
    lines = [f"CREATE FLOW {name}"]
    if flow.comment:
        lines.append(f"COMMENT {quoted_text(flow.comment)}")
    if flow.options:
        lines.append(f"WITH {_properties(flow.options)}")
    insert = f"AS INSERT INTO {quoted_name(flow.table)} BY NAME"
    return "\n".join([*lines, insert, flow.query.text])


def _create_job(job: CreateJob, insert: Insert) -> str:
    lines = [f"CREATE JOB {quoted_name(job.name)}"]
    if job.properties:
        lines.append(f"PROPERTIES {_properties(job.properties)}")
    lines.append("ON STREAMING")
    if job.comment:
        lines.append(f"COMMENT {quoted_text(job.comment)}")
    return "\n".join([*lines, "DO", *_insert(insert)])


def _create_routine_load(job: CreateJob, body: RoutineBody) -> str:
    table = quoted_name(body.table or "")
    lines = [f"CREATE ROUTINE LOAD {quoted_name(job.name)} ON {table}"]
    if clauses := list(_load(body.load)):
        lines.append(",\n".join(clauses))
    if job.properties:
        lines.append(f"PROPERTIES {_properties(job.properties)}")
    if body.source is not None:
        lines.append(f"FROM {body.source.function} {_properties(body.source.options)}")
    if job.comment:
        lines.append(f"COMMENT {quoted_text(job.comment)}")
    return "\n".join(lines)


def _load(load: LoadProperties) -> Iterator[str]:
    if load.separator is not None:
        yield f"COLUMNS TERMINATED BY {quoted_text(load.separator)}"
    if load.columns is not None:
        yield f"COLUMNS ({', '.join(map(_load_column, load.columns))})"
    if load.preceding_filter is not None:
        yield f"PRECEDING FILTER {load.preceding_filter}"
    if load.where is not None:
        yield f"WHERE {load.where}"


def _load_column(column: LoadColumn) -> str:
    name = quoted_name(column.name)
    return name if column.expression is None else f"{name} = {column.expression}"


def _insert(insert: Insert) -> Iterable[str]:
    columns = ""
    if insert.columns is not None:
        columns = f" ({', '.join(quoted_name(column) for column in insert.columns)})"
    source = insert.source
    call = f"{source.function}{_properties(source.options)}"
    return [
        f"INSERT INTO {quoted_name(insert.table)}{columns}",
        insert.select[: source.start] + call + insert.select[source.end :],
    ]


def _properties(properties: Properties) -> str:
    return _listed(f"{quoted_text(key)} = {_value(value)}" for key, value in properties)


def _value(text: str) -> str:
    match reference_of(text):
        case SecretReference(name=name) as reference:
            stored = is_secret_name(name) and reference_text(reference) == text
            return f"SECRET {quoted_text(name)}" if stored else quoted_text(text)
        case _:
            return quoted_text(text)


def _listed(items: Iterable[str]) -> str:
    lines = ",\n".join(f"  {item}" for item in items)
    return f"(\n{lines}\n)" if lines else "()"
