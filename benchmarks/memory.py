"""Peak memory of a run after few and after many loaded files.

The product fills both homes with the same job. Then one more file arrives, and a new process
polls the source and loads the file. Its peak memory must not depend on the number of files that
were loaded before.
"""

import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.command_line import penstock_command, run_penstock
from benchmarks.figures import Comparison, Figure, Goal
from benchmarks.product import create_job
from benchmarks.sample_orders import SQL_COLUMNS, write_orders

POLL_SECONDS = 0.02
DRIVER, WORKER, JAVA = "driver", "Python worker", "Java"
FLAT = Goal(at_most=1.15)


def measure_memory(root: Path, console: Console, *, files: tuple[int, int]) -> list[Figure]:
    """Compare an epoch after few files with an epoch after many; return the figures."""
    few, many = (_one_more_epoch(root, console, files=count) for count in files)
    figures = []
    for role in (DRIVER, WORKER, JAVA):
        ratio = Comparison(
            ratio=many[role] / few[role],
            against=f"{files[0]:,} files",
            # A Java heap grows until a collection, so its size is not comparable.
            goal=None if role == JAVA else FLAT,
        )
        name = f"peak of {role}"
        figures += [
            Figure(name=f"{name}, {files[0]:,} files", value=few[role], unit="MB"),
            Figure(name=f"  {files[1]:,} files", value=many[role], unit="MB").against(ratio),
        ]
    return figures


def _one_more_epoch(root: Path, console: Console, *, files: int) -> dict[str, float]:
    console.print(f"loading {files:,} small files …", style="dim")
    inbox, home = root / f"memory-inbox-{files}", root / f"memory-home-{files}"
    write_orders(inbox, files=files, rows_per_file=1)
    run_penstock(home, "sql", "-e", create_job("j", inbox=inbox, columns=SQL_COLUMNS))
    filling = peak_megabytes(home, "run", "--until-caught-up")
    console.print(f"peaks while loading: {_peaks_text(filling)}", style="dim")
    write_orders(inbox, files=1, rows_per_file=1, first=files)
    return peak_megabytes(home, "run", "--until-caught-up")


def _peaks_text(peaks: dict[str, float]) -> str:
    return ", ".join(f"{role} {peak:,.0f} MB" for role, peak in sorted(peaks.items()))


def peak_megabytes(home: Path, *arguments: str) -> dict[str, float]:
    """Run a penstock command; return the peak memory of each kind of process."""
    process = subprocess.Popen(
        penstock_command(*arguments),
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        stdout=subprocess.DEVNULL,
    )
    peaks: dict[str, float] = defaultdict(float)
    driver = psutil.Process(process.pid)
    never = threading.Event()
    while process.poll() is None:
        for role, megabytes in _peaks(driver):
            peaks[role] = max(peaks[role], megabytes)
        never.wait(POLL_SECONDS)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return dict(peaks)


def _peaks(driver: psutil.Process) -> Iterable[tuple[str, float]]:
    try:
        family: Sequence[psutil.Process] = [driver, *driver.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            yield role_of(process, driver), peak_bytes(process) / 1e6
        except (psutil.NoSuchProcess, psutil.ZombieProcess, OSError):
            # The process ended after it was listed.
            continue


def role_of(process: psutil.Process, driver: psutil.Process) -> str:
    """Return the role of a process of a run."""
    if process.pid == driver.pid:
        return DRIVER
    return WORKER if "python" in process.name() else JAVA


def peak_bytes(process: psutil.Process) -> int:
    """Return the peak memory of a process, or its current memory if the peak is unknown."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
