"""Delta readers of other projects, and tables to read."""

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from penstock.arrow.types import arrow_schema
from penstock.model.schema import Column
from penstock.tables.delta import DeltaTables
from penstock.tables.writer import TableWriter
from tests.contract.table_building import attachment, folder_at

Row = dict[str, Any]
Reader = Callable[[str, str], list[Row]]


def read_with_deltalake(location: str, condition: str) -> list[Row]:
    query = QueryBuilder().register("t", DeltaTable(location))
    result = query.execute(f"SELECT * FROM t WHERE {condition}")  # noqa: S608
    return pa.table(result.read_all()).to_pylist()


def read_with_polars(location: str, condition: str) -> list[Row]:
    # Read through Arrow, because Polars returns maps as lists of entries.
    frame = pl.scan_delta(location).filter(pl.sql_expr(condition)).collect()
    return frame.to_arrow().to_pylist()


def read_with_duckdb(location: str, condition: str) -> list[Row]:
    package = Path(str(duckdb_extension_delta.__file__)).parent
    (extension,) = package.rglob(f"v{duckdb.__version__}/delta.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT * FROM delta_scan('{location}') WHERE {condition}"  # noqa: S608
        return connection.execute(query).to_arrow_table().to_pylist()


READERS = [read_with_deltalake, read_with_polars, read_with_duckdb]


def written(
    folder: Path,
    columns: tuple[Column, ...],
    *files: Iterable[Row],
    partition_by: tuple[str, ...] = (),
) -> str:
    """Write and commit a table of one file for each group of rows and partition."""
    tables = DeltaTables(str(folder))
    table = tables.create("t", columns, location=None, comment="", partition_by=partition_by)
    for number, rows in enumerate(files, start=1):
        writer = TableWriter(
            folder_at(Path(table.location)), columns, f"{number}", partition_by=partition_by
        )
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(columns)))
        tables.open(table.location).commit(attachment(number), writer.close())
    return table.location


def comparable(value: object) -> object:
    """Convert NaN and maps so that equal values of different readers compare equal."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case {"key": key, "value": item}:
            return [key, item]
        case datetime():
            return value.isoformat()
        case dict():
            return {name: comparable(item) for name, item in value.items()}
        case list() | tuple():
            return [comparable(item) for item in value]
        case _:
            return value


def in_order(rows: Iterable[Row]) -> list[str]:
    return sorted(repr(comparable(row)) for row in rows)
