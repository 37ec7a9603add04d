"""A real SeaweedFS with its S3 interface.

SeaweedFS checks keys, its data survives ``kill -9``, and it lists keys folder by folder, not in
byte order.
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
# The worker always expects the admin server's second port here, regardless of its options.
_SECOND_PORT = 10_000


@dataclass
class SeaweedServer:
    """A SeaweedFS in a folder; a restart keeps address, keys and data."""

    folder: Path
    access_key: str = field(default_factory=lambda: secrets.token_hex(10))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "weed.log")
        self._ports: dict[str, int] = {}

    @property
    def endpoint(self) -> str:
        """Address of the S3 interface."""
        return f"http://{HOST}:{self._ports['s3.port']}"

    def start(self) -> None:
        """Start the server and wait until it stores objects."""
        if self._ports:
            self._child.start(self._command())
            return
        self._child.start_with_retries(
            self._command_on_new_ports, after_failure=self._remove_sockets
        )

    def stop(self) -> None:
        """Stop the server cleanly."""
        self._child.stop()
        self._remove_sockets()

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
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
            # Every bucket has its own volumes; empty volumes are small.
            "volume.max": "10000",
        }
        given = choices | {name: str(port) for name, port in self._ports.items()}
        return Command(
            words=[str(_WEED), "mini", *(f"-{name}={value}" for name, value in given.items())],
            environment=bare_environment(
                HOME=str(self.folder),
                AWS_ACCESS_KEY_ID=self.access_key,
                AWS_SECRET_ACCESS_KEY=self.secret_key,
                # By default, the first object of a bucket would create seven volumes.
                WEED_MASTER_VOLUME_GROWTH_COPY_1="1",
            ),
            port=self._ports["s3.port"],
            not_ready=self._not_ready,
        )

    def _not_ready(self) -> str:
        """Return why an object cannot be written and read, or an empty text."""
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
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - Chosen by SeaweedFS.
                path.unlink(missing_ok=True)


def _new_ports() -> dict[str, int]:
    (admin,) = free_ports(1, also_free=_SECOND_PORT)
    others = iter(free_ports(2 * len(_PARTS)))
    ports = {
        f"{part}.{kind}": next(others) for part in _PARTS for kind in ("port", "port.grpc")
    }
    return ports | {"admin.port": admin, "admin.port.grpc": admin + _SECOND_PORT}
