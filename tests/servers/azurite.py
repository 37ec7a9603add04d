"""Azurite from npm: Microsoft's emulator of Azure Blob Storage.

The package is installed once per machine and version. Its account and key are public, and
Azurite checks them.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.servers.child import (
    HOST,
    Child,
    Command,
    bare_environment,
    free_ports,
)
from tests.servers.containers import ContainerError, send_request
from tests.servers.npm import node_program, npm_package

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"

_PROGRAM = "dist/src/blob/main.js"
_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass
class Azurite:
    """An Azurite in a folder, on a new port at every start."""

    folder: Path
    access_key: str = ACCOUNT
    secret_key: str = _KEY

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "azurite.log")
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Address of the account's containers."""
        return f"http://{HOST}:{self._port}/{self.access_key}"

    def start(self) -> None:
        """Install the server if necessary, start it and wait until it responds."""
        package = npm_package("azurite", VERSION, program=_PROGRAM)
        self._child.start_with_retries(lambda: self._command(package))

    def stop(self) -> None:
        """Stop the server cleanly."""
        self._child.stop()

    def _command(self, package: Path) -> Command:
        (self._port,) = free_ports(1)
        choices = {
            "blobHost": HOST,
            "blobPort": str(self._port),
            "location": str(self.folder / "data"),
        }
        given = [word for name, value in choices.items() for word in (f"--{name}", value)]
        # Clients may use a newer version of the protocol than Azurite supports.
        flags = ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        return Command(
            words=[node_program(), str(package / _PROGRAM), *given, *flags],
            environment=bare_environment(),
            port=self._port,
            not_ready=self._not_ready,
        )

    def _not_ready(self) -> str:
        try:
            send_request(self, "GET", parameters={"comp": "list"})
        except (ContainerError, OSError) as error:
            return str(error)
        return ""
