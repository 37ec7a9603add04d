"""Pin a table that a SELECT joins with to one version."""

from penstock.errors import Code, UserError
from penstock.model.job import TableRef
from penstock.model.query import Lookup, LookupFile
from penstock.tables.extension import open_table
from penstock.tables.table import Tables


def pin(table: TableRef, *, tables: Tables, bytes_max: int) -> Lookup:
    """Answer the table at its newest version; UserError if it is too large to be sent."""
    handle = open_table(tables, table)
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
    )
