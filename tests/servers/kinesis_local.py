"""kinesis-local from npm: a second implementation of shards, iterators and reshards.

The package is installed once per machine and version. It binds every interface, so a script
that is loaded first restricts it. It never throttles and never trims.
"""

from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.child import (
    HOST,
    Child,
    Command,
    bare_environment,
    free_ports,
)
from tests.servers.kinesis_clients import kinesis_client
from tests.servers.npm import node_program, npm_package

VERSION = "0.6.2"

_PROGRAM = "main.js"
_DURATIONS = (
    "CREATE_STREAM_DURATION",
    "DELETE_STREAM_DURATION",
    "SPLIT_SHARD_DURATION",
    "MERGE_SHARDS_DURATION",
    "UPDATE_SHARD_COUNT_DURATION",
)
_BIND = """\
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (first, ...rest) {
  if (typeof first === "object" && first !== null) {
    return listen.call(this, { ...first, host: "127.0.0.1" }, ...rest);
  }
  const callback = rest.filter((one) => typeof one === "function");
  return listen.call(this, { port: Number(first), host: "127.0.0.1" }, ...callback);
};
"""


@dataclass
class KinesisLocal:
    """A kinesis-local with its log in a folder; all its data is in memory."""

    folder: Path

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "kinesis-local.log")
        self._ports: list[int] = []

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://{HOST}:{self._ports[0]}"

    def start(self) -> None:
        """Install the server if necessary, start it and wait until it responds."""
        package = npm_package("kinesis-local", VERSION, program=_PROGRAM)
        self._child.start_with_retries(lambda: self._command(package))

    def stop(self) -> None:
        """Stop the server cleanly."""
        self._child.stop()

    def _command(self, package: Path) -> Command:
        self.folder.mkdir(parents=True, exist_ok=True)
        bind = self.folder / "bind.js"
        bind.write_text(_BIND)
        self._ports = plain, tls = free_ports(2)
        return Command(
            words=[node_program(), "-r", str(bind), str(package / _PROGRAM)],
            environment=bare_environment(
                KINESIS_MOCK_PLAIN_PORT=str(plain),
                KINESIS_MOCK_TLS_PORT=str(tls),
                KINESIS_MOCK_CERT_PATH=str(package / "server.json"),
                SHARD_LIMIT="1000",
                LOG_LEVEL="WARN",
                **dict.fromkeys(_DURATIONS, "50ms"),
            ),
            port=plain,
            not_ready=self._not_ready,
        )

    def _not_ready(self) -> str:
        with kinesis_client(self.endpoint) as client:
            try:
                client.list_streams()
            except (BotoCoreError, ClientError) as error:
                return str(error)
        return ""
