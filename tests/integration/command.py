"""The ``penstock`` command, as users type it.

Commands that run to their end are forked from a process that has imported all modules. Commands
that run in the background or write elsewhere use the installed command.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.clock import SystemClock
from tests.forking import CommandContext, Forked

COMMAND = Path(sys.executable).parent / "penstock"
TIMEOUT_SECONDS = 120
POLL_PERIOD = timedelta(milliseconds=50)

# A short-lived JVM is fastest with few optimisations.
SETTINGS = """
[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    error: str

    @property
    def json(self) -> list[list[dict[str, Any]]]:
        """The rows of every statement."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Shell:
    """Runs commands in a folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        stdin: str = "",
        stdout: int = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command to its end."""
        merged_environment = self._environment(environment or {})
        if stdout == subprocess.PIPE:
            return self._forked(arguments, stdin=stdin, environment=merged_environment)
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=merged_environment,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return CommandResult(code=done.returncode, out=done.stdout or "", error=done.stderr)

    def _forked(
        self, arguments: tuple[str, ...], *, stdin: str, environment: dict[str, str]
    ) -> CommandResult:
        with tempfile.TemporaryDirectory() as folder:
            streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
            input_file, out, error = streams
            input_file.write_text(stdin)
            merged_environment = CommandContext(
                environment=environment,
                folder=str(self.folder),
                stdin=str(input_file),
                stdout=str(out),
                stderr=str(error),
            )
            command = Forked(arguments, merged_environment)
            try:
                code = command.wait(TIMEOUT_SECONDS)
            finally:
                command.kill()
            return CommandResult(code=code, out=out.read_text(), error=error.read_text())

    def sql(self, text: str, *more: str) -> CommandResult:
        """Run statements."""
        return self.run("sql", "-e", text, *more)

    def start(self, *arguments: str) -> "Running":
        """Start a command in the background."""
        out, error = self.folder / "out.txt", self.folder / "error.txt"
        with out.open("wb") as to_out, error.open("wb") as to_error:
            process = subprocess.Popen(
                [COMMAND, *arguments],
                cwd=self.folder,
                env=self._environment({}),
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_error,
            )
        return Running(process=process, out=out, error=error)

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        return {**inherited, "COLUMNS": "200", **self.environment, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A command in the background."""

    process: "subprocess.Popen[bytes]"
    out: Path
    error: Path

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> CommandResult:
        """Wait for the command to end."""
        code = self.process.wait(TIMEOUT_SECONDS)
        return CommandResult(code=code, out=self.out.read_text(), error=self.error.read_text())

    def end(self) -> None:
        """Kill the command if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert clock.monotonic() < deadline, f"did not happen within {TIMEOUT_SECONDS}s"
        clock.wait(never, POLL_PERIOD)
