"""Format statements so that the parser reads the same statement back."""

from collections.abc import Iterable, Iterator

from penstock.model.job import LoadColumn, LoadProperties
from penstock.model.schema import column_sql
from penstock.model.secrets import SecretReference, reference_of, reference_text
from penstock.model.text import quoted_name, quoted_text
from penstock.sql.names import is_secret_name
from penstock.sql.statements import CreateJob, CreateTable, Insert, Properties, RoutineBody


def format_statement(statement: CreateTable | CreateJob) -> str:
    """Return the text of a statement, on several lines, without a semicolon."""
    if isinstance(statement, CreateTable):
        return _create_table(statement)
    body = statement.body
    if isinstance(body, RoutineBody):
        return _create_routine_load(statement, body)
    return _create_job(statement, body)


def _create_table(table: CreateTable) -> str:
    clause = " IF NOT EXISTS" if table.if_not_exists else ""
    columns = _listed(column_sql(column) for column in table.columns)
    lines = [f"CREATE TABLE{clause} {quoted_name(table.name)} {columns}", "USING DELTA"]
    if table.partition_by:
        names = ", ".join(quoted_name(name) for name in table.partition_by)
        lines.append(f"PARTITIONED BY ({names})")
    if table.comment:
        lines.append(f"COMMENT {quoted_text(table.comment)}")
    if table.location is not None:
        lines.append(f"LOCATION {quoted_text(table.location)}")
    return "\n".join(lines)


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
