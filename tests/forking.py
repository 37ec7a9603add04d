"""Processes that are forked from one which has imported everything and done nothing else.

Importing takes longer than anything else that most commands of the tests do.
"""

import atexit
import io
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What commands import when they get there.
NEEDED = (
    "penstock.cli.main",
    "penstock.app",
    "penstock.control.execute",
    "penstock.cli.doctor.examine",
    "penstock.cli.run",
    "penstock.cli.main",
    "penstock.cli.prompt.session",
    "penstock.supervisor.supervisor",
    "penstock.epochs.task",
    "penstock.spark.executor",
    "penstock.tables.delta",
    "penstock.storage.bucket",
    "penstock.testing.executor",
    "tests.crash.in_process_node",
    "cryptography.fernet",
    "boto3",
    "deltalake",
    "obstore",
    "pyarrow.json",
    "pyarrow.parquet",
    "rich.live",
    "sqlalchemy",
    "structlog",
)

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, *NEEDED])


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a command finds around it; with a terminal, its streams are that."""

    environment: Mapping[str, str]
    folder: str = "."
    stdin: str = os.devnull
    stdout: str = os.devnull
    # Empty for the same as the standard output.
    stderr: str = ""
    terminal: str = ""


@dataclass
class Forked:
    """A command that was started; it is spoken to as to one of subprocess."""

    words: Sequence[str]
    around: Surroundings
    # Called before the command, in its process.
    prepare: Callable[[], None] | None = None
    _process: Any = field(init=False)

    def __post_init__(self) -> None:
        self._process = _FORKS.Process(
            target=_be_the_command, args=(list(self.words), self.around, self.prepare)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its number."""
        number: int = self._process.pid
        return number

    def poll(self) -> int | None:
        """Answer its exit code once it has ended."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and answer the exit code."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(list(self.words), timeout or 0)
        return code

    def send_signal(self, sign: int) -> None:
        """Send it a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        """Kill it if it still runs."""
        self.send_signal(signal.SIGKILL)


def _be_the_command(
    words: list[str], around: Surroundings, prepare: Callable[[], None] | None
) -> None:
    from penstock.cli.main import main

    _connect(around)
    os.chdir(around.folder)
    os.environ.clear()
    os.environ.update(around.environment)
    sys.path[1:1] = around.environment.get("PYTHONPATH", "").split(os.pathsep)
    if prepare is not None:
        prepare()
    sys.argv = ["penstock", *words]
    try:
        main()
    finally:
        # A forked process ends without what others do at their end.
        atexit._run_exitfuncs()


def _connect(around: Surroundings) -> None:
    """Let the three streams lead to the files, or to the terminal that becomes its own."""
    if around.terminal:
        os.setsid()
        os.login_tty(os.open(around.terminal, os.O_RDWR))
    else:
        with Path(around.stdin).open("rb") as given, Path(around.stdout).open("ab") as said:
            os.dup2(given.fileno(), 0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        if around.stderr:
            with Path(around.stderr).open("ab") as said:
                os.dup2(said.fileno(), 2)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            os.fdopen(number, "wb", closefd=False),
            encoding="utf-8",
            line_buffering=number == 2 or os.isatty(number),
        )
        for number in (1, 2)
    )
