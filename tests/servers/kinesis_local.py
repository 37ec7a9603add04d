"""npm's kinesis-local: a second opinion on shards, iterators and reshards.

It installs itself, once per machine and version. It binds every interface unless a script that
is loaded before it says otherwise; it never throttles and never trims.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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

VERSION = "0.6.2"

_INSTALL_SECONDS = 240
_QUIET = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", ".")
_PACKAGES = ("nodejs", "npm")
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


class NotInstalledError(Exception):
    """What the server needs is not there; the message says what to install."""


@dataclass
class KinesisLocal:
    """A kinesis-local with its log below a folder; all that it keeps is in memory."""

    folder: Path

    def __post_init__(self) -> None:
        self._child = Child(self.folder / "kinesis-local.log")
        self._ports: list[int] = []

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return f"http://{HOST}:{self._ports[0]}"

    def start(self) -> None:
        """Install the server if need be, start it and wait until it answers."""
        package = installed_package()
        self._child.start_anew(lambda: self._command(package))

    def stop(self) -> None:
        """End the server in good order."""
        self._child.stop()

    def _command(self, package: Path) -> Command:
        self.folder.mkdir(parents=True, exist_ok=True)
        bind = self.folder / "bind.js"
        bind.write_text(_BIND)
        self._ports = plain, tls = free_ports(2)
        return Command(
            words=[_program("node"), "-r", str(bind), str(package / "main.js")],
            environment=bare_environment(
                KINESIS_MOCK_PLAIN_PORT=str(plain),
                KINESIS_MOCK_TLS_PORT=str(tls),
                KINESIS_MOCK_CERT_PATH=str(package / "server.json"),
                SHARD_LIMIT="1000",
                LOG_LEVEL="WARN",
                **dict.fromkeys(_DURATIONS, "50ms"),
            ),
            port=plain,
            lacks=self._lacks,
        )

    def _lacks(self) -> str:
        with kinesis_client(self.endpoint) as client:
            try:
                client.list_streams()
            except (BotoCoreError, ClientError) as error:
                return str(error)
        return ""


def installed_package() -> Path:
    """Answer the folder of the package, after installing it if it is not there."""
    # Every user has a folder, because others must not put anything into it.
    cache = Path(tempfile.gettempdir()) / f"penstock-npm-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise NotInstalledError(f"{cache} belongs to somebody else; remove it")
    home = cache / f"kinesis-local-{VERSION}"
    package = home / "node_modules" / "kinesis-local"
    done = home / "installed"
    with _locked(cache / "lock"):
        _require_node()
        # A cleaner of temporary folders may have taken a part.
        if not (done.exists() and (package / "main.js").exists()):
            home.mkdir(exist_ok=True)
            _run([_program("npm"), "install", *_QUIET, f"kinesis-local@{VERSION}"], home)
            done.touch()
    return package


def _require_node() -> None:
    """Install Node where this is allowed; say what to install where it is not."""
    if shutil.which("node") and shutil.which("npm"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotInstalledError(
            "the Kinesis tests need node and npm; as root: "
            f"apt-get install -y --no-install-recommends {' '.join(_PACKAGES)}"
        )
    _run(["apt-get", "update"], Path("/"))
    _run(["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES], Path("/"))


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(f"the Kinesis tests need {name}, which is not on the path")
    return found


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise NotInstalledError(f"{' '.join(words)} ended with {done.returncode}\n{said}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time in; the lock goes with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
