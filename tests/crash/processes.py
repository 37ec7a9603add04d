"""The penstock command as processes: the installed one, or one that is forked without Spark.

Importing takes longer than anything that a process without Spark does here, so those are forked
from one which has imported everything and done nothing else.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.crash import in_process_node

SPARK = (str(Path(sys.executable).parent / "penstock"),)
# Stands for the command whose tasks run in its own process.
IN_PROCESS = ("penstock without Spark",)
PATIENCE_SECONDS = 240

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([in_process_node.__name__, *in_process_node.NEEDED])


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Answer its exit code once it has ended."""
        ...

    def wait(self) -> int:
        """Wait for its end and answer the exit code."""
        ...


def start(command: Sequence[str], *, said: Path, environment: dict[str, str]) -> Child:
    """Start a command; everything it says goes to a file."""
    if tuple(command[: len(IN_PROCESS)]) == IN_PROCESS:
        return _Forked(command[len(IN_PROCESS) :], said=said, environment=environment)
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

    def wait(self) -> int:
        return self._process.wait(PATIENCE_SECONDS)


class _Forked:
    def __init__(
        self, arguments: Sequence[str], *, said: Path, environment: dict[str, str]
    ) -> None:
        said.touch()
        self._process = _FORKS.Process(
            target=in_process_node.run, args=(list(arguments), str(said), environment)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join(PATIENCE_SECONDS)
        assert self._process.exitcode is not None, "the process did not end in time"
        return self._process.exitcode


def kill(child: Child) -> None:
    """Kill a process if it is still there, and wait for its end."""
    if child.poll() is None:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
