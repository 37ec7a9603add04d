"""Time of SHOW JOBS on the command line, against the bare import of its libraries."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from rich.console import Console

from benchmarks.figures import Comparison, Figure, Goal, of_samples
from benchmarks.product import create_job
from benchmarks.sample_orders import SQL_COLUMNS, write_orders

IMPORTS = "import typer, rich, sqlglot, sqlalchemy"


def measure_command_line(root: Path, console: Console, *, times: int) -> list[Figure]:
    """Time the command and the bare import alternately; return the figures."""
    console.print("timing SHOW JOBS …", style="dim")
    inbox, home = root / "command-inbox", root / "command-home"
    write_orders(inbox, files=1, rows_per_file=10)
    statements = create_job("j", inbox=inbox, columns=SQL_COLUMNS)
    run_penstock(home, "sql", "-e", statements)
    shows, imports = [], []
    for _ in range(times):
        shows.append(_timed(lambda: run_penstock(home, "sql", "-e", "SHOW JOBS")))
        imports.append(_timed(_import_only))
    bare = of_samples("import typer, rich, sqlglot …", _ms(imports), "ms")
    show = of_samples('penstock sql -e "SHOW JOBS"', _ms(shows), "ms")
    ratio = show.value / bare.value
    goal = Goal(at_most=1.5)
    return [bare, show.against(Comparison(ratio=ratio, against="bare import", goal=goal))]


def _ms(seconds: list[float]) -> list[float]:
    return [1000 * taken for taken in seconds]


def run_penstock(home: Path, *arguments: str) -> None:
    """Run the penstock command on a home without output."""
    subprocess.run(
        penstock_command(*arguments),
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def penstock_command(*arguments: str) -> list[str]:
    """Return the command line of the penstock installed next to this Python."""
    return [str(Path(sys.executable).with_name("penstock")), *arguments]


def _import_only() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def _timed(work: Callable[[], None]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started
