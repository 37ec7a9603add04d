"""SELECT over tables: this module pins the table versions, and Spark runs the SELECT.

Invariant: each table is opened once per SELECT, so the whole SELECT reads one version of it.
"""

from difflib import get_close_matches
from typing import assert_never

import pyarrow as pa

from penstock.arrow.json_text import NOT_FINITE, json_texts, plain_texts
from penstock.arrow.types import AnyType, NestedArray, data_type
from penstock.catalog.catalog import Catalog
from penstock.control.execute import Services
from penstock.control.find import find_job, find_table, located
from penstock.control.result import Cell, Result, ResultColumn
from penstock.errors import SelectError, UserError
from penstock.model.job import TableRef
from penstock.model.query import with_view
from penstock.model.text import quoted_name
from penstock.sql.names import DATABASE
from penstock.sql.statements import RejectsRead, TableQuery, VersionRead
from penstock.tables.rejects import reject_columns
from penstock.tables.scan import TableScan, scan_rejects, scan_table
from penstock.tables.table import Tables

_REJECTS = "rejects"


def select_from_tables(query: TableQuery, *, services: Services) -> Result:
    """Return the rows of a SELECT over tables."""
    catalog, tables = services.catalog, services.tables
    scans = {
        _view(number): _scan(read, catalog=catalog, tables=tables)
        for number, read in enumerate(query.reads)
    }

    scan_by_table: dict[str, TableScan] = {}

    def find_scan(name: str) -> TableScan:
        table = _table(name, catalog=catalog)
        if table.name not in scan_by_table:
            scan_by_table[table.name] = scan_table(table, tables=tables)
        return scan_by_table[table.name]

    try:
        rows = services.open_analyzer().select(
            spark_text(query), scans=scans, find_scan=find_scan
        )
    except SelectError as error:
        raise located(error, query.select, select_at=query.select_at) from error
    return result_of(rows)


def spark_text(query: TableQuery) -> str:
    """Replace the parts that Spark cannot resolve by names of views.

    The other parts keep their lines and columns.
    """
    text = query.select
    for number, read in reversed(list(enumerate(query.reads))):
        name = _REJECTS if isinstance(read, RejectsRead) else quoted_name(read.table)
        view = f"`{_view(number)}`" + ("" if read.aliased else f" {name}")
        text = with_view(text, start=read.start, end=read.end, view=view)
    return text


def _view(number: int) -> str:
    return f"@{number}"


def _scan(read: RejectsRead | VersionRead, *, catalog: Catalog, tables: Tables) -> TableScan:
    match read:
        case RejectsRead():
            job = find_job(read.job, catalog=catalog)
            columns = reject_columns(job.definition.place_columns)
            return scan_rejects(job.id, name=_REJECTS, columns=columns, tables=tables)
        case VersionRead():
            table = _table(read.table, catalog=catalog)
            return scan_table(table, tables=tables, version=read.version)
        case _:
            assert_never(read)


def _table(name: str, *, catalog: Catalog) -> TableRef:
    bare = name.lower().removeprefix(f"{DATABASE}.")
    try:
        record = find_table(bare, catalog=catalog)
    except UserError as error:
        near = get_close_matches(bare, [table.name for table in catalog.tables()], n=1)
        hints = [f'Did you mean "{near[0]}"?', error.hint] if near else [error.hint]
        raise UserError(error.message, code=error.code, hint=" ".join(hints)) from error
    return TableRef(name=record.name, id=record.id, location=record.location)


def result_of(rows: "pa.Table") -> Result:
    """Return Arrow rows as a result.

    Booleans, integers and finite floating-point numbers do not change. Nested values become
    JSON, and all other values become strings.
    """
    columns = [
        [cell for chunk in column.chunks for cell in _cells(chunk)] for column in rows.columns
    ]
    cells = zip(*columns, strict=True) if columns else ()
    return Result(
        columns=tuple(
            ResultColumn(name=field.name, type=_type_name(field.type)) for field in rows.schema
        ),
        rows=tuple(cells),
        batches=rows.to_batches(),
    )


def _type_name(kind: AnyType) -> str:
    """Return the SQL name of an Arrow type; STRING for types that no column can have."""
    try:
        return data_type(kind).sql
    except UserError:
        return "STRING"


def _cells(array: NestedArray) -> list[Cell]:
    if pa.types.is_nested(array.type):
        return list(json_texts(array, printed=True))
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return list(array.to_pylist())
    texts = plain_texts(array, printed=True)
    if pa.types.is_floating(array.type):
        # The text of a FLOAT is short; a direct conversion to a Python float adds digits.
        return [t if t is None or t in NOT_FINITE else float(t) for t in texts]
    return list(texts)
