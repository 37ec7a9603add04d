"""Baselines for Penstock: a plain copy, Spark's own stream and a hand-written loop.

No baseline uses code of Penstock.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import IO, TypeVar, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS

_T = TypeVar("_T")
PROCESSES = 2
BLOCK_BYTES = 1 << 20
GROUP_BYTES = 64 << 20


def copy_bytes(files: Sequence[Path], target: Path) -> float:
    """Copy the bytes of all files into one file, as cat does; return the seconds."""
    started = perf_counter()
    with target.open("wb") as sink:
        for path in files:
            with path.open("rb") as source:
                shutil.copyfileobj(source, sink, BLOCK_BYTES)
    return perf_counter() - started


def start_plain_spark(scratch: Path) -> None:
    """Start Spark in this process with its defaults, as a user of Spark would."""
    from pyspark.sql import SparkSession

    scratch.mkdir(parents=True, exist_ok=True)
    log = os.open(scratch / "plain-spark.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    builder = SparkSession.builder.master("local[*]").appName("plain")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    builder.getOrCreate()


def stream_with_spark(
    inbox: Path, target: Path, outputs: Sequence[str] = ("*",), condition: str = "true"
) -> float:
    """Load a folder with Spark's readStream into Parquet; return the seconds."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    started = perf_counter()
    query = (
        spark.readStream.schema(SQL_COLUMNS)
        .json(str(inbox))
        .where(condition)
        .selectExpr(*outputs)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(target / "rows"))
    )
    query.awaitTermination()
    return perf_counter() - started


def load_by_hand(pool: ProcessPoolExecutor, files: Sequence[Path], target: Path) -> float:
    """Load files with pyarrow in several processes, in one commit; return the seconds."""
    table = DeltaTable.create(str(target), Schema.from_arrow(ARROW_SCHEMA))
    started = perf_counter()
    shares = split_evenly(files, parts=PROCESSES)
    paths = [target / f"{uuid4().hex}.parquet" for _ in shares]
    rows = list(pool.map(write_share, shares, paths))
    actions: list[AddAction | RemoveAction] = [
        _add_action(path, count) for path, count in zip(paths, rows, strict=True)
    ]
    table.create_write_transaction(actions, mode="append", schema=table.schema())
    return perf_counter() - started


def split_evenly(files: Sequence[_T], *, parts: int) -> list[list[_T]]:
    """Split files into parts of about equal number; all sample files have the same size."""
    return [list(files[part::parts]) for part in range(parts)]


def write_share(files: Sequence[Path], target: Path) -> int:
    """Write files of JSON lines as one Parquet file; return the number of rows."""
    return write_tables((read_orders(path) for path in files), target)


def write_tables(tables: Iterable[pa.Table], target: Path | pa.NativeFile) -> int:
    """Write tables as one Parquet file in large row groups; return the number of rows."""
    waiting: list[pa.RecordBatch] = []
    rows = waiting_bytes = 0
    with _parquet_writer(target) as writer:
        for table in tables:
            for batch in table.to_batches():
                waiting.append(batch)
                waiting_bytes += batch.nbytes
                rows += batch.num_rows
            if waiting_bytes >= GROUP_BYTES:
                _write_group(writer, waiting)
                waiting_bytes = 0
        _write_group(writer, waiting)
    return rows


def read_orders(path: Path | pa.NativeFile) -> pa.Table:
    """Read JSON lines with pyarrow in one thread."""
    return pj.read_json(
        cast("IO[bytes]", path),
        read_options=pj.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
        parse_options=pj.ParseOptions(
            explicit_schema=ARROW_SCHEMA,
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        ),
    )


def _write_group(writer: pq.ParquetWriter, waiting: list[pa.RecordBatch]) -> None:
    if waiting:
        group = pa.Table.from_batches(waiting, ARROW_SCHEMA)
        writer.write_table(group, row_group_size=group.num_rows)
        waiting.clear()


def _parquet_writer(target: Path | pa.NativeFile) -> pq.ParquetWriter:
    """Return a writer with the options of the product."""
    strings = [f.name for f in ARROW_SCHEMA if pa.types.is_string(f.type)]
    packed = [
        f.name
        for f in ARROW_SCHEMA
        if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)
    ]
    return pq.ParquetWriter(
        target,
        ARROW_SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=strings,  # type: ignore[arg-type] # A list is allowed.
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        store_schema=False,
    )


def _add_action(path: Path, rows: int) -> AddAction:
    status = path.stat()
    return AddAction(
        path=path.name,
        size=status.st_size,
        partition_values={},
        modification_time=int(status.st_mtime * 1000),
        data_change=True,
        stats=f'{{"numRecords":{rows}}}',
    )
