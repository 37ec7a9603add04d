"""Statements about tables."""

from penstock.catalog.catalog import Catalog, TableRecord
from penstock.control.changes import delete_ended_job
from penstock.control.execute import Services
from penstock.control.find import find_table, require_unused
from penstock.control.result import Result, result_columns
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, UserError
from penstock.model.job import JobState, TableRef
from penstock.model.text import quoted_name
from penstock.sql.formatter import format_statement
from penstock.sql.statements import (
    CreateTable,
    DescribeDetail,
    DescribeTable,
    DropTable,
    ShowCreateTable,
    ShowTables,
)
from penstock.tables.table import TableHandle, Tables

_WORD = {True: "YES", False: "NO"}


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
    table = _unregistered_table(statement, catalog=catalog, tables=tables) or tables.create(
        statement.name,
        statement.columns,
        location=statement.location,
        comment=statement.comment,
        partition_by=statement.partition_by,
    )
    reached(CrashPoint.TABLE_CREATED)
    catalog.create_table(
        TableRecord(
            name=table.name,
            id=table.id,
            location=table.location,
            managed=statement.location is None,
            comment=statement.comment,
            created_at=clock.now(),
        )
    )
    return Result(message=f"table {statement.name} created")


def _unregistered_table(
    statement: CreateTable, *, catalog: Catalog, tables: Tables
) -> TableRef | None:
    """Return the table that the same statement created before it crashed, if any."""
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
    if handle.version > 0 or handle.detail().files or known or not same:
        return None
    location = tables.normal_location(statement.location)
    return TableRef(name=statement.name, id=handle.table_id, location=location)


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
    joining = [state for state in jobs if not state.stopped and _joins(state, record)]
    require_unused(f'table "{record.name}" is loaded by', loading)
    require_unused(
        f'table "{record.name}" is joined by',
        joining,
        instead="ALTER with another INSERT or WHERE",
    )
    for state in users:
        delete_ended_job(state, catalog=catalog, tables=tables)


def _joins(state: JobState, record: TableRecord) -> bool:
    query = state.definition.query
    return query is not None and any(table.id == record.id for table in query.lookups)


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
            "rows BIGINT, partition_columns"
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
            ),
        ),
    )


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
        )
    )
    return Result(
        columns=result_columns("table, create_statement"), rows=((record.name, text),)
    )


def _open(name: str, services: Services) -> tuple[TableRecord, TableHandle]:
    record = find_table(name, catalog=services.catalog)
    return record, services.tables.open(record.location)
