"""The ``penstock`` command, typed as people type it.

What runs to its end is forked from a process that has imported everything; what goes on in the
background, or writes elsewhere, is the installed command.
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
from tests.forking import Forked, Surroundings

COMMAND = Path(sys.executable).parent / "penstock"
PATIENCE_SECONDS = 120
BLINK = timedelta(milliseconds=50)

# A JVM that lives for seconds is quickest when it does not optimise much.
SETTINGS = """
[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    error: str

    @property
    def json(self) -> list[list[dict[str, Any]]]:
        """What every statement answered."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Shell:
    """A folder in which commands are typed."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        stdin: str = "",
        stdout: int = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> Said:
        """Run a command to its end."""
        around = self._environment(environment or {})
        if stdout == subprocess.PIPE:
            return self._forked(arguments, stdin=stdin, environment=around)
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=around,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Said(code=done.returncode, out=done.stdout or "", error=done.stderr)

    def _forked(
        self, arguments: tuple[str, ...], *, stdin: str, environment: dict[str, str]
    ) -> Said:
        with tempfile.TemporaryDirectory() as folder:
            streams = [Path(folder) / name for name in ("typed", "said", "complained")]
            given, out, error = streams
            given.write_text(stdin)
            around = Surroundings(
                environment=environment,
                folder=str(self.folder),
                stdin=str(given),
                stdout=str(out),
                stderr=str(error),
            )
            command = Forked(arguments, around)
            try:
                code = command.wait(PATIENCE_SECONDS)
            finally:
                command.kill()
            return Said(code=code, out=out.read_text(), error=error.read_text())

    def sql(self, text: str, *more: str) -> Said:
        """Run statements."""
        return self.run("sql", "-e", text, *more)

    def start(self, *arguments: str) -> "Running":
        """Start a command that goes on in the background."""
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
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> Said:
        """Wait for the end."""
        code = self.process.wait(PATIENCE_SECONDS)
        return Said(code=code, out=self.out.read_text(), error=self.error.read_text())

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while not true():
        assert clock.monotonic() < deadline, f"did not happen within {PATIENCE_SECONDS}s"
        clock.wait(never, BLINK)
