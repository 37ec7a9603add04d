"""The penstock command as processes: the installed one, or one that is forked without Spark."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.crash.in_process_node import use_no_spark
from tests.forking import Forked, Surroundings

SPARK = (str(Path(sys.executable).parent / "penstock"),)
# Stands for the command whose tasks run in its own process.
IN_PROCESS = ("penstock without Spark",)
PATIENCE_SECONDS = 240


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Answer its exit code once it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and answer the exit code."""
        ...


def start(command: Sequence[str], *, said: Path, environment: dict[str, str]) -> Child:
    """Start a command; everything it says goes to a file."""
    if tuple(command[: len(IN_PROCESS)]) == IN_PROCESS:
        said.touch()
        around = Surroundings(environment=environment, stdout=str(said))
        return Forked(command[len(IN_PROCESS) :], around, prepare=use_no_spark)
    return _Installed(command, said=said, environment=environment)


class _Installed:
    def __init__(
        self, command: Sequence[str], *, said: Path, environment: dict[str, str]
    ) -> None:
        with said.open("wb") as output:
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
    """Kill a process if it is still there, and wait for its end."""
    if child.poll() is None:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(PATIENCE_SECONDS)
