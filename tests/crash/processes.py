"""Processes of the penstock command: installed with Spark, or forked without Spark."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.crash.in_process_node import use_no_spark
from tests.forking import CommandContext, Forked

SPARK = (str(Path(sys.executable).parent / "penstock"),)
# The marker of the command whose tasks run in its own process.
IN_PROCESS = ("penstock without Spark",)
TIMEOUT_SECONDS = 240


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the exit code; None if the process still runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return the exit code."""
        ...


def start(command: Sequence[str], *, output_path: Path, environment: dict[str, str]) -> Child:
    """Start a command with its output in a file."""
    if tuple(command[: len(IN_PROCESS)]) == IN_PROCESS:
        output_path.touch()
        around = CommandContext(environment=environment, stdout=str(output_path))
        return Forked(command[len(IN_PROCESS) :], around, prepare=use_no_spark)
    return _Installed(command, output_path=output_path, environment=environment)


class _Installed:
    def __init__(
        self, command: Sequence[str], *, output_path: Path, environment: dict[str, str]
    ) -> None:
        with output_path.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)


def kill(child: Child) -> None:
    """Kill a process if it still runs, and wait for its end."""
    if child.poll() is None:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(TIMEOUT_SECONDS)
