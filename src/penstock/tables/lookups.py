"""Pin a table that a SELECT reads or joins with to one version."""

from penstock.errors import Code, UserError
from penstock.model.job import TableRef
from penstock.model.query import Lookup, LookupFile
from penstock.model.sealed import Sealed
from penstock.tables.extension import open_table
from penstock.tables.rejects import REJECT_COLUMNS
from penstock.tables.scan import TableScan
from penstock.tables.table import TableHandle, Tables


def pin(table: TableRef, *, tables: Tables, bytes_max: int) -> Lookup:
    """Answer the table at its newest version; UserError if it is too large to be sent."""
    try:
        handle = open_table(tables, table)
    except UserError as error:
        raise UserError(
            f'table "{table.name}", with which the SELECT joins, cannot be opened',
            code=error.code,
            detail=f"{error.message}.",
            hint="Put the table back, or give the job another SELECT with ALTER JOB.",
        ) from error
    files = handle.files()
    size_bytes = sum(file.size_bytes for file in files)
    if size_bytes > bytes_max:
        raise UserError(
            f'table "{table.name}" has {size_bytes} bytes, a SELECT may join with {bytes_max}',
            code=Code.OPTION_ERR,
            hint='Raise "lookup_max_bytes": every task holds the whole table in memory.',
        )
    return Lookup(
        table=table,
        version=handle.version,
        size_bytes=size_bytes,
        columns=handle.columns(),
        files=tuple(
            LookupFile(path=file.path, partition_values=file.partition_values) for file in files
        ),
        access=tables.task_access(table.location),
    )


def scan_table(table: TableRef, *, tables: Tables, version: int | None = None) -> TableScan:
    """Answer what a SELECT reads of a table, at its newest version unless one is given."""
    handle = tables.open(table.location)
    handle = handle if version is None else handle.at(version)
    return _scan(table.name, table.location, handle, access=tables.task_access(table.location))


def scan_rejects(job_id: str, *, name: str, tables: Tables) -> TableScan:
    """Answer what a SELECT reads of a job's rejects; without any, nothing in their columns."""
    location = tables.rejects_location(job_id)
    try:
        access = tables.task_access(location)
        return _scan(name, location, tables.open(location), access=access)
    except UserError as error:
        if error.code is not Code.TABLE_CHANGED_ERR:
            raise
        return TableScan(
            name=name, location=location, version=0, columns=REJECT_COLUMNS, files=()
        )


def _scan(name: str, location: str, handle: TableHandle, *, access: Sealed) -> TableScan:
    return TableScan(
        name=name,
        location=location,
        version=handle.version,
        columns=handle.columns(),
        files=handle.files(),
        access=access,
    )
