"""A moto server: S3 with the key order of AWS, and STS.

All data is in memory, so a restarted server is empty. moto accepts any keys.
"""

import http.client
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.child import (
    HOST,
    Child,
    Command,
    bare_environment,
    free_ports,
)


@dataclass
class MotoServer:
    """A moto with its log in a folder; a restart keeps the address."""

    folder: Path
    access_key: str = field(default_factory=lambda: secrets.token_hex(10))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "moto.log")
        self._port: int | None = None

    @property
    def endpoint(self) -> str:
        """Address of S3, STS and the other services."""
        assert self._port is not None, "the server was never started"
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start the server and wait until it responds."""
        if self._port is not None:
            self._child.start(self._command(self._port))
            return
        self._child.start_with_retries(self._command_on_new_port)

    def stop(self) -> None:
        """Stop the server cleanly."""
        self._child.stop()

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self._child.kill()

    def _command_on_new_port(self) -> Command:
        (self._port,) = free_ports(1)
        return self._command(self._port)

    def _command(self, port: int) -> Command:
        return Command(
            words=[sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)],
            environment=bare_environment(),
            port=port,
            not_ready=lambda: _not_ready(port),
        )


def _not_ready(port: int) -> str:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/moto-api/")
        status = connection.getresponse().status
    except OSError as error:
        return str(error)
    finally:
        connection.close()
    return "" if status == http.HTTPStatus.OK else f"it answers {status}"
