"""A server in a child process that listens on ports of its own."""

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

_PATIENCE_SECONDS = 60
_STOP_SECONDS = 20
_STARTS_MAX = 3
_BLINK = timedelta(milliseconds=50)
_LOG_TAIL_BYTES = 4_000
_PORT_TRIES_MAX = 10_000
# Below the ports that the system gives to outgoing connections on its own accord: a port that
# a stopped server has left stays free until the server starts again.
_PORTS = range(12_000, 30_000)


class NotStartedError(Exception):
    """A server did not answer; the message ends with what it said last."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to start, and how to see that it is there; ``lacks`` answers why it is not."""

    words: Sequence[str]
    environment: Mapping[str, str]
    port: int
    lacks: Callable[[], str]


@dataclass
class Child:
    """One server process at a time, with a log that all of them share."""

    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self, command: Command) -> None:
        """Start the process and wait until it answers."""
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

    def start_anew(
        self, command: Callable[[], Command], *, give_up: Callable[[], None] = lambda: None
    ) -> None:
        """Start what is made with new ports each time, until it answers.

        Another server may have been faster to take one of them; ``give_up`` follows each time.
        """
        for again in reversed(range(_STARTS_MAX)):
            try:
                self.start(command())
            except NotStartedError:
                give_up()
                if not again:
                    raise
            else:
                return

    def stop(self) -> None:
        """Ask the process to end, and wait until it has; nothing happens if none runs."""
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
        """End the process without a last word; nothing happens if none runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def _wait_for(self, command: Command) -> None:
        assert self._process is not None
        clock, never = SystemClock(), threading.Event()
        deadline = clock.monotonic() + _PATIENCE_SECONDS
        while lack := self._lack(command):
            code = self._process.poll()
            if code is not None:
                lack = f"it ended with {code}"
            if code is not None or clock.monotonic() > deadline:
                raise NotStartedError(
                    f"{command.words[0]} did not start: {lack}\n{self._tail()}"
                )
            clock.wait(never, _BLINK)

    def _lack(self, command: Command) -> str:
        if not self._listens(command.port):
            return f"it does not listen on port {command.port}"
        return command.lacks()

    def _listens(self, port: int) -> bool:
        """Answer whether it is this process, and not a stranger, that has the port."""
        assert self._process is not None
        try:
            opened = psutil.Process(self._process.pid).net_connections("tcp4")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return any(c.status == psutil.CONN_LISTEN and c.laddr[1] == port for c in opened)

    def _tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


def free_ports(count: int, *, also_free: int = 0) -> list[int]:
    """Answer free ports; with ``also_free``, the port that much higher is free too."""
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
        # As servers do: connections that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def bare_environment(**given: str) -> dict[str, str]:
    """Answer this process's environment without what would steer a storage server."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "WEED_", "MOTO_"))}
    return kept | given
