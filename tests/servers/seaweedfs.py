"""A real SeaweedFS with its S3 interface.

Its keys are checked, its data survives ``kill -9``, and it lists keys folder by folder, not in
the order of their bytes.
"""

import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.buckets import open_client
from tests.servers.child import (
    HOST,
    Child,
    Command,
    bare_environment,
    free_ports,
)

_WEED = Path(sys.executable).parent / "weed"
_PARTS = ("master", "volume", "filer", "s3")
# Its worker looks for the admin server's second port here, whatever else was said.
_SECOND_PORT = 10_000


@dataclass
class SeaweedServer:
    """A SeaweedFS below a folder; started again, it has the same address, keys and data."""

    folder: Path
    access_key: str = field(default_factory=lambda: secrets.token_hex(10))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "weed.log")
        self._ports: dict[str, int] = {}

    @property
    def endpoint(self) -> str:
        """Where S3 is served."""
        return f"http://{HOST}:{self._ports['s3.port']}"

    def start(self) -> None:
        """Start the server and wait until it keeps objects."""
        if self._ports:
            self._child.start(self._command())
            return
        self._child.start_anew(self._command_on_new_ports, give_up=self._remove_sockets)

    def stop(self) -> None:
        """End the server in good order."""
        self._child.stop()
        self._remove_sockets()

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._child.kill()
        self._remove_sockets()

    def _command_on_new_ports(self) -> Command:
        self._ports = _new_ports()
        return self._command()

    def _command(self) -> Command:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        choices = {
            "dir": str(data),
            "ip": HOST,
            "ip.bind": HOST,
            "master.telemetry": "false",
            "webdav": "false",
            "admin.ui": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            # Every bucket takes volumes of its own; they are small as long as they are empty.
            "volume.max": "10000",
        }
        given = choices | {name: str(port) for name, port in self._ports.items()}
        return Command(
            words=[str(_WEED), "mini", *(f"-{name}={value}" for name, value in given.items())],
            environment=bare_environment(
                HOME=str(self.folder),
                AWS_ACCESS_KEY_ID=self.access_key,
                AWS_SECRET_ACCESS_KEY=self.secret_key,
                # It would make seven volumes for the first object of a bucket.
                WEED_MASTER_VOLUME_GROWTH_COPY_1="1",
            ),
            port=self._ports["s3.port"],
            lacks=self._lacks,
        )

    def _lacks(self) -> str:
        """Answer why no object can be written and read, or an empty text."""
        client = open_client("s3", self)
        probe = f"probe-{secrets.token_hex(6)}"
        try:
            client.create_bucket(Bucket=probe)
            client.put_object(Bucket=probe, Key="probe", Body=b"here")
            client.get_object(Bucket=probe, Key="probe")["Body"].read()
            client.delete_bucket(Bucket=probe)
        except (BotoCoreError, ClientError) as error:
            return str(error)
        else:
            return ""
        finally:
            client.close()

    def _remove_sockets(self) -> None:
        for port in self._ports.values():
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - Its choice.
                path.unlink(missing_ok=True)


def _new_ports() -> dict[str, int]:
    (admin,) = free_ports(1, also_free=_SECOND_PORT)
    others = iter(free_ports(2 * len(_PARTS)))
    ports = {
        f"{part}.{kind}": next(others) for part in _PARTS for kind in ("port", "port.grpc")
    }
    return ports | {"admin.port": admin, "admin.port.grpc": admin + _SECOND_PORT}
