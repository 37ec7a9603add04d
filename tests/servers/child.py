"""A server in a child process with its own ports."""

import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psutil

from penstock.clock import SystemClock

HOST = "127.0.0.1"

_TIMEOUT_SECONDS = 60
_STOP_SECONDS = 20
_STARTS_MAX = 3
_POLL_PERIOD = timedelta(milliseconds=50)
_LOG_TAIL_BYTES = 4_000
_PORT_TRIES_MAX = 10_000
# Below the range of ephemeral ports. So the port of a stopped server stays free until the
# server starts again.
_PORTS = range(12_000, 30_000)


class NotStartedError(Exception):
    """A server did not respond; the message ends with its last output."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line and its readiness check, which returns a reason or an empty text."""

    words: Sequence[str]
    environment: Mapping[str, str]
    port: int
    not_ready: Callable[[], str]


@dataclass
class Child:
    """One server process at a time; all processes write to the same log."""

    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self, command: Command) -> None:
        """Start the process and wait until it responds."""
        assert self._process is None, "the server runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command.words,
                env=dict(command.environment),
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_for(command)
        except BaseException:
            self.kill()
            raise

    def start_with_retries(
        self,
        command: Callable[[], Command],
        *,
        after_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the server with new ports at each attempt, until it responds.

        Another server may have taken one of the ports. ``after_failure`` runs after each failed
        attempt.
        """
        for again in reversed(range(_STARTS_MAX)):
            try:
                self.start(command())
            except NotStartedError:
                after_failure()
                if not again:
                    raise
            else:
                return

    def stop(self) -> None:
        """Terminate the process and wait for it; do nothing if no process runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill the process and wait for it; do nothing if no process runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def _wait_for(self, command: Command) -> None:
        assert self._process is not None
        clock, never = SystemClock(), threading.Event()
        deadline = clock.monotonic() + _TIMEOUT_SECONDS
        while problem := self._not_ready(command):
            code = self._process.poll()
            if code is not None:
                problem = f"it ended with {code}"
            if code is not None or clock.monotonic() > deadline:
                raise NotStartedError(
                    f"{command.words[0]} did not start: {problem}\n{self._tail()}"
                )
            clock.wait(never, _POLL_PERIOD)

    def _not_ready(self, command: Command) -> str:
        if not self._listens(command.port):
            return f"it does not listen on port {command.port}"
        return command.not_ready()

    def _listens(self, port: int) -> bool:
        """Return whether this process, and no other, listens on the port."""
        assert self._process is not None
        try:
            opened = psutil.Process(self._process.pid).net_connections("tcp4")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return any(c.status == psutil.CONN_LISTEN and c.laddr[1] == port for c in opened)

    def _tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


def free_ports(count: int, *, also_free: int = 0) -> list[int]:
    """Return free ports; ``also_free``: the port at this distance must be free too."""
    found: list[int] = []
    chosen = random.SystemRandom()
    for _ in range(_PORT_TRIES_MAX):
        if len(found) == count:
            return found
        port = chosen.choice(_PORTS)
        if port not in found and _free(port) and (not also_free or _free(port + also_free)):
            found.append(port)
    raise NotStartedError(f"no {count} ports are free in {_PORTS}")


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: ignore connections that are still closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def bare_environment(**given: str) -> dict[str, str]:
    """Return this process's environment without variables that configure storage servers."""
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "WEED_", "MOTO_"))
    }
    return inherited | given
