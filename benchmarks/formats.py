"""Throughput of CSV and Parquet files, against pyarrow's own reader and writer."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.baselines import split_evenly, write_tables
from benchmarks.environment import Environment
from benchmarks.figures import Comparison, Figure, of_samples, paired_ratio
from benchmarks.product import Source, create_job
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders
from benchmarks.throughput import FILES, RowComparison, read_delta

Write = Callable[[pa.Table, Path], None]
Read = Callable[[Path], pa.Table]


def write_csv(rows: pa.Table, path: Path) -> None:
    """Write rows as CSV without quotes or a header."""
    options = pcsv.WriteOptions(include_header=False, quoting_style="none")
    pcsv.write_csv(rows, path, options)


def read_csv(path: Path) -> pa.Table:
    """Read CSV with known column types."""
    return pcsv.read_csv(
        path,
        read_options=pcsv.ReadOptions(
            use_threads=False, column_names=ARROW_SCHEMA.names, block_size=1 << 20
        ),
        convert_options=pcsv.ConvertOptions(column_types=ARROW_SCHEMA),
    )


def write_parquet(rows: pa.Table, path: Path) -> None:
    """Write rows as Parquet with the defaults of pyarrow."""
    pq.write_table(rows, path)


def read_parquet(path: Path) -> pa.Table:
    """Read a whole Parquet file."""
    return pq.read_table(path, use_threads=False, partitioning=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format: its writer, its baseline reader, and its options in Penstock."""

    name: str
    write: Write
    read: Read
    source: Source


FORMATS = (
    Format(
        name="CSV",
        write=write_csv,
        read=read_csv,
        source=Source(suffix="csv", options="'format' = 'csv', 'column_separator' = ','"),
    ),
    Format(
        name="Parquet",
        write=write_parquet,
        read=read_parquet,
        source=Source(suffix="parquet", options="'format' = 'parquet'"),
    ),
)


def measure_formats(environment: Environment, *, rows: int, rounds: int) -> list[Figure]:
    """Load the same rows from files of every format, alternately by hand and by Penstock."""
    figures: list[Figure] = []
    for kind in FORMATS:
        inbox = _inbox(environment, kind, rows=rows)
        hand: list[float] = []
        own: list[float] = []
        comparison = RowComparison(rows=rows)
        for number in range(rounds + 1):
            by_hand = _by_hand(environment, kind, inbox, comparison, values=number == 0)
            penstock = _penstock(environment, kind, inbox, comparison, values=number == 0)
            # The first round warms up.
            if number:
                hand.append(rows / 1000 / by_hand)
                own.append(rows / 1000 / penstock)
        figures.append(of_samples(f"{kind.name}, pyarrow by hand", hand, "k rows/s"))
        compared = Comparison(ratio=paired_ratio(own, hand), against="pyarrow by hand")
        penstock_figure = of_samples(f"{kind.name}, Penstock", own, "k rows/s")
        figures.append(penstock_figure.against(compared))
    return figures


def _inbox(environment: Environment, kind: Format, *, rows: int) -> Path:
    environment.console.print(f"writing {rows:,} rows as {kind.name} …", style="dim")
    lines = environment.fresh_folder("lines")
    inbox = environment.fresh_folder(kind.source.suffix)
    write_orders(lines, files=FILES, rows_per_file=rows // FILES)
    options = pj.ParseOptions(explicit_schema=ARROW_SCHEMA)
    for path in sorted(lines.iterdir()):
        table = pj.read_json(path, parse_options=options)
        kind.write(table, inbox / path.with_suffix(f".{kind.source.suffix}").name)
    shutil.rmtree(lines)
    return inbox


def _by_hand(
    environment: Environment,
    kind: Format,
    inbox: Path,
    comparison: RowComparison,
    *,
    values: bool,
) -> float:
    folder = environment.fresh_folder("by-hand")
    files = sorted(inbox.iterdir())
    started = perf_counter()
    shares = split_evenly(files, parts=2)
    targets = [folder / f"{part}.parquet" for part in range(len(shares))]
    list(environment.by_hand.map(_load_share, [kind.read] * len(shares), shares, targets))
    seconds = perf_counter() - started
    comparison.check(pq.read_table(folder), name=f"{kind.name} by hand", values=values)
    return seconds


def _load_share(read: Read, files: Sequence[Path], target: Path) -> None:
    write_tables((read(path) for path in files), target)


def _penstock(
    environment: Environment,
    kind: Format,
    inbox: Path,
    comparison: RowComparison,
    *,
    values: bool,
) -> float:
    product = environment.product
    product.sql(create_job("f", inbox=inbox, columns=SQL_COLUMNS, source=kind.source))
    seconds = product.load("f").to_visible
    comparison.check(read_delta(product.location("f")), name=kind.name, values=values)
    product.sql("DROP JOB f; DROP TABLE f")
    return seconds
