"""Commands that run in processes forked from a server which has imported all modules.

Importing takes longer than anything else that most commands in the tests do.
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

# Modules that commands import lazily.
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
class CommandContext:
    """Environment, folder and standard streams of a command.

    A command with a terminal uses the terminal for all three streams.
    """

    environment: Mapping[str, str]
    folder: str = "."
    stdin: str = os.devnull
    stdout: str = os.devnull
    # Empty: the same file as standard output.
    stderr: str = ""
    terminal: str = ""


@dataclass
class Forked:
    """A forked command with the interface of subprocess.Popen."""

    words: Sequence[str]
    context: CommandContext
    # Called in the command's process, before the command.
    prepare: Callable[[], None] | None = None
    _process: Any = field(init=False)

    def __post_init__(self) -> None:
        self._process = _FORKS.Process(
            target=_run_command, args=(list(self.words), self.context, self.prepare)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id."""
        number: int = self._process.pid
        return number

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end; return its exit code."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(list(self.words), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal if the process still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process if it still runs."""
        self.send_signal(signal.SIGKILL)


def _run_command(
    words: list[str], context: CommandContext, prepare: Callable[[], None] | None
) -> None:
    from penstock.cli.main import main

    _connect(context)
    os.chdir(context.folder)
    os.environ.clear()
    os.environ.update(context.environment)
    sys.path[1:1] = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if prepare is not None:
        prepare()
    sys.argv = ["penstock", *words]
    try:
        main()
    finally:
        # multiprocessing skips atexit handlers in forked processes.
        atexit._run_exitfuncs()


def _connect(context: CommandContext) -> None:
    """Redirect the standard streams to the files or to the controlling terminal."""
    if context.terminal:
        os.setsid()
        os.login_tty(os.open(context.terminal, os.O_RDWR))
    else:
        with (
            Path(context.stdin).open("rb") as input_file,
            Path(context.stdout).open("ab") as output_file,
        ):
            os.dup2(input_file.fileno(), 0)
            os.dup2(output_file.fileno(), 1)
            os.dup2(output_file.fileno(), 2)
        if context.stderr:
            with Path(context.stderr).open("ab") as output_file:
                os.dup2(output_file.fileno(), 2)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            os.fdopen(number, "wb", closefd=False),
            encoding="utf-8",
            line_buffering=number == 2 or os.isatty(number),
        )
        for number in (1, 2)
    )
