"""Measure Penstock and its baselines on the same data in the same run."""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.backlog import measure_backlog
from benchmarks.buckets import measure_buckets
from benchmarks.command_line import measure_command_line
from benchmarks.environment import Environment, open_environment
from benchmarks.figures import Figure, print_figures, save_figures
from benchmarks.formats import measure_formats
from benchmarks.memory import measure_memory
from benchmarks.small_epochs import measure_small_epochs
from benchmarks.sql_path import measure_small_sql_epochs, measure_sql_path
from benchmarks.streaming_tables import measure_streaming_tables
from benchmarks.streams import Amounts, measure_streams
from benchmarks.throughput import RowsDifferError, measure_throughput

WIDTH_MIN = 124
SCHEDULED_PARTS = ("throughput", "formats", "buckets", "small-epochs", "kinesis")
PARTS = (*SCHEDULED_PARTS, "select", "streaming-tables", "backlog", "command-line", "memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return 1 only if two outputs differ, not if a goal is missed."""
    request = _parser().parse_args(arguments)
    console = Console(highlight=False)
    # The table needs this width, also in a file or a pipe.
    console.width = max(console.width, WIDTH_MIN)
    about = machine()
    console.print(", ".join(f"{name} {value}" for name, value in about.items()))
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            figures = measure(Path(folder).resolve(), request, console)
        except RowsDifferError as error:
            console.print(f"[bold red]The outputs differ:[/] {error}")
            return 1
    about["load after"] = _load()
    print_figures(figures, console)
    console.print(f"load average: {about['load before']}; after: {about['load after']}")
    if request.json:
        save_figures(figures, about, request.json)
    return 0


def measure(root: Path, request: argparse.Namespace, console: Console) -> list[Figure]:
    """Run the requested parts in order."""
    quick = bool(request.quick)
    wanted = request.only or PARTS
    rows = request.rows or (200_000 if quick else 2_000_000)
    rounds = request.rounds or (1 if quick else 5)
    figures: list[Figure] = []
    if set(SCHEDULED_PARTS) & set(wanted):
        with open_environment(root / "scheduled", console, computing=False) as environment:
            for part, work in _scheduled(quick=quick, rows=rows, rounds=rounds).items():
                figures += work(environment) if part in wanted else []
    if "select" in wanted:
        with open_environment(root / "computed", console, computing=True) as environment:
            figures += measure_sql_path(environment, rows=rows, rounds=rounds)
            figures += measure_small_sql_epochs(environment, epochs=30 if quick else 60)
    if "streaming-tables" in wanted:
        figures += measure_streaming_tables(
            root, console, rows=rows, rounds=min(rounds, 2), quick=quick
        )
    if "backlog" in wanted:
        rows_waiting = request.rows or (200_000 if quick else 5_000_000)
        figures += measure_backlog(root, console, rows=rows_waiting, quick=quick)
    if "command-line" in wanted:
        figures += measure_command_line(root, console, times=3 if quick else 10)
    if "memory" in wanted:
        figures += measure_memory(root, console, files=(1_000, 5_000 if quick else 100_000))
    return figures


def _scheduled(
    *, quick: bool, rows: int, rounds: int
) -> dict[str, Callable[[Environment], list[Figure]]]:
    """Return the parts whose tasks Spark only schedules."""
    keys, epochs, records = (500, 30, 20_000) if quick else (5_000, 60, 200_000)
    return {
        "throughput": partial(measure_throughput, rows=rows, rounds=rounds),
        "formats": partial(measure_formats, rows=rows, rounds=rounds),
        "buckets": partial(measure_buckets, rows=rows, rounds=rounds, keys=keys),
        "small-epochs": partial(measure_small_epochs, epochs=epochs),
        "kinesis": partial(
            measure_streams, amounts=Amounts(records=records, rounds=min(rounds, 3))
        ),
    }


def machine() -> dict[str, object]:
    """Return a description of the machine."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count() or 0,
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": _load(),
    }


def _load() -> str:
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/files.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200,000 rows, one round")
    parser.add_argument("--rows", type=int, help="number of rows to load")
    parser.add_argument("--rounds", type=int, help="number of rounds")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="run only this part; can be repeated"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to this file"
    )
    return parser
