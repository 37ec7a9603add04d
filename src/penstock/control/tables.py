"""Statements about tables."""

from collections.abc import Sequence

from penstock.catalog.catalog import Catalog, TableRecord
from penstock.control.changes import delete_ended_job
from penstock.control.execute import Services
from penstock.control.find import find_table, readers_of, require_unused
from penstock.control.result import Result, result_columns
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, UserError
from penstock.model.job import TableRef
from penstock.model.schema import Column, Primitive
from penstock.model.text import format_names, quoted_name
from penstock.sql.formatter import format_interval, format_statement
from penstock.sql.statements import (
    AlterTableWatermark,
    CreateTable,
    DescribeDetail,
    DescribeTable,
    DropTable,
    ShowCreateTable,
    ShowTables,
    Watermark,
)
from penstock.tables.table import TableHandle, Tables

_WORD = {True: "YES", False: "NO"}
_NAMES_SHOWN_MAX = 20


def create_table(statement: CreateTable, *, services: Services) -> Result:
    """Create an empty Delta table and register it."""
    catalog, tables, clock = services.catalog, services.tables, services.clock
    if catalog.table(statement.name) is not None:
        if statement.if_not_exists:
            return Result(message=f"table {statement.name} already exists")
        raise UserError(
            f'table "{statement.name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint=(
                "Choose another name, write IF NOT EXISTS, or run "
                f"DROP TABLE {quoted_name(statement.name)} first."
            ),
        )
    watermark = checked_watermark(
        statement.watermark, table=statement.name, columns=statement.columns
    )
    table = unregistered_table(
        statement, versions_max=0, catalog=catalog, tables=tables
    ) or tables.create(
        statement.name,
        statement.columns,
        location=statement.location,
        comment=statement.comment,
        partition_by=statement.partition_by,
    )
    reached(CrashPoint.TABLE_CREATED)
    column, delay_ms = _stored(watermark)
    catalog.create_table(
        TableRecord(
            name=table.name,
            id=table.id,
            location=table.location,
            managed=statement.location is None,
            comment=statement.comment,
            created_at=clock.now(),
            watermark_column=column,
            watermark_delay_ms=delay_ms,
        )
    )
    return Result(message=f"table {statement.name} created")


def checked_watermark(
    watermark: Watermark | None, *, table: str, columns: Sequence[Column]
) -> Watermark | None:
    """Return the watermark with the column name as declared, or raise UserError."""
    if watermark is None:
        return None
    named = (c for c in columns if c.name.lower() == watermark.column.lower())
    column = next(named, None)
    if column is None:
        known = [c.name for c in columns if c.type is Primitive.TIMESTAMP]
        raise UserError(
            f'watermark column "{watermark.column}" is not a column of the table "{table}"',
            code=Code.TYPE_ERR,
            hint=f"Known columns of the type TIMESTAMP: {_names(known)}.",
        )
    if column.type is not Primitive.TIMESTAMP:
        raise UserError(
            f'watermark column "{column.name}" must have the type TIMESTAMP, '
            f"not {column.type.sql}",
            code=Code.TYPE_ERR,
            hint="Choose another column, or convert the values when they are loaded.",
        )
    return Watermark(column=column.name, delay_ms=watermark.delay_ms)


def _names(names: Sequence[str]) -> str:
    return format_names(names, shown_max=_NAMES_SHOWN_MAX) or "none"


def unregistered_table(
    statement: CreateTable, *, versions_max: int, catalog: Catalog, tables: Tables
) -> TableRef | None:
    """Return the table that a crashed run of the same statement created, if any.

    ``versions_max`` is the number of commits that the statement writes after the first commit.
    """
    if statement.location is None:
        return None
    try:
        handle = tables.open(statement.location)
    except UserError:
        return None
    same = (handle.columns(), handle.partition_columns()) == (
        statement.columns,
        statement.partition_by,
    )
    known = any(record.id == handle.table_id for record in catalog.tables())
    if handle.version > versions_max or handle.detail().files or known or not same:
        return None
    location = tables.normal_location(statement.location)
    return TableRef(name=statement.name, id=handle.table_id, location=location)


def alter_table_watermark(statement: AlterTableWatermark, *, services: Services) -> Result:
    """Set or remove the event time of a table, for streaming tables that are created later."""
    catalog = services.catalog
    record = find_table(statement.name, catalog=catalog)
    watermark = statement.watermark
    if watermark is not None:
        columns = services.tables.open(record.location).columns()
        watermark = checked_watermark(watermark, table=record.name, columns=columns)
    if watermark == _watermark_of(record):
        found = "has no watermark" if watermark is None else "already has this watermark"
        message = f'ALTER has no effect: table "{record.name}" {found}'
        raise UserError(message, code=Code.OPTION_ERR)
    catalog.set_watermark(record.name, *_stored(watermark))
    return Result(message=f"table {record.name} altered")


def _stored(watermark: Watermark | None) -> tuple[str | None, int]:
    return (None, 0) if watermark is None else (watermark.column, watermark.delay_ms)


def _watermark_of(record: TableRecord) -> Watermark | None:
    column, delay_ms = record.watermark_column, record.watermark_delay_ms
    return None if column is None else Watermark(column=column, delay_ms=delay_ms)


def drop_table(statement: DropTable, *, services: Services) -> Result:
    """Drop a table; its files are deleted unless LOCATION was specified."""
    catalog, tables = services.catalog, services.tables
    if catalog.table(statement.name) is None and statement.if_exists:
        return Result(message=f"table {statement.name} does not exist")
    record = find_table(statement.name, catalog=catalog)
    _release(record, catalog=catalog, tables=tables)
    catalog.delete_table(statement.name)
    reached(CrashPoint.TABLE_FORGOTTEN)
    if not record.managed:
        return Result(
            message=f"table {record.name} dropped; its files remain at {record.location}"
        )
    tables.delete(record.location)
    return Result(message=f"table {record.name} dropped")


def _release(record: TableRecord, *, catalog: Catalog, tables: Tables) -> None:
    """Raise if a job loads or joins the table; delete its stopped routine loads."""
    jobs = catalog.jobs()
    users = [state for state in jobs if state.definition.table.id == record.id]
    loading = [state for state in users if not state.stopped]
    readers = readers_of(record.id, [state for state in jobs if not state.stopped])
    streaming = [state for state in readers if state.definition.streaming is not None]
    require_unused(f'table "{record.name}" is loaded by', loading)
    require_unused(f'table "{record.name}" is read by', streaming)
    require_unused(
        f'table "{record.name}" is joined by',
        readers,
        instead="ALTER with another INSERT or WHERE",
    )
    for state in users:
        delete_ended_job(state, catalog=catalog, tables=tables)


def show_tables(statement: ShowTables, *, services: Services) -> Result:
    """List the tables."""
    del statement
    rows = tuple((t.name, t.location, t.comment) for t in services.catalog.tables())
    return Result(columns=result_columns("name, location, comment"), rows=rows)


def describe_table(statement: DescribeTable, *, services: Services) -> Result:
    """List the columns of a table."""
    _, handle = _open(statement.name, services)
    partition_columns = handle.partition_columns()
    rows = tuple(
        (c.name, c.type.sql, _WORD[c.nullable], _WORD[c.name in partition_columns], c.comment)
        for c in handle.columns()
    )
    return Result(
        columns=result_columns("column, type, nullable, partition, comment"), rows=rows
    )


def describe_detail(statement: DescribeDetail, *, services: Services) -> Result:
    """Return the location and the size of a table."""
    record, handle = _open(statement.name, services)
    detail = handle.detail()
    return Result(
        columns=result_columns(
            "name, location, table_id, version BIGINT, files BIGINT, bytes BIGINT, "
            "rows BIGINT, partition_columns, watermark"
        ),
        rows=(
            (
                record.name,
                record.location,
                handle.table_id,
                detail.version,
                detail.files,
                detail.size_bytes,
                detail.rows,
                ", ".join(handle.partition_columns()),
                _watermark_text(record),
            ),
        ),
    )


def _watermark_text(record: TableRecord) -> str:
    watermark = _watermark_of(record)
    if watermark is None:
        return ""
    delay = f" - {format_interval(watermark.delay_ms)}" if watermark.delay_ms else ""
    return watermark.column + delay


def show_create_table(statement: ShowCreateTable, *, services: Services) -> Result:
    """Return the statement that creates the same table."""
    record, handle = _open(statement.name, services)
    text = format_statement(
        CreateTable(
            name=record.name,
            columns=handle.columns(),
            partition_by=handle.partition_columns(),
            location=None if record.managed else record.location,
            comment=record.comment,
            watermark=_watermark_of(record),
        )
    )
    return Result(
        columns=result_columns("table, create_statement"), rows=((record.name, text),)
    )


def _open(name: str, services: Services) -> tuple[TableRecord, TableHandle]:
    record = find_table(name, catalog=services.catalog)
    return record, services.tables.open(record.location)
