"""Servers from npm: each package is installed once per machine and version."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_INSTALL_SECONDS = 240
_QUIET = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", ".")
_PACKAGES = ("nodejs", "npm")


class NotInstalledError(Exception):
    """A required program is missing; the message names what to install."""


def npm_package(name: str, version: str, *, program: str) -> Path:
    """Return the folder of a package with a program; install the package if necessary."""
    # Every user has a private folder, so that other users cannot put files into it.
    cache = Path(tempfile.gettempdir()) / f"penstock-npm-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise NotInstalledError(f"{cache} belongs to another user; remove it")
    home = cache / f"{name}-{version}"
    package = home / "node_modules" / name
    done = home / "installed"
    with _locked(cache / "lock"):
        _require_node()
        # A cleaner of temporary folders may have deleted some files.
        if not (done.exists() and (package / program).exists()):
            home.mkdir(exist_ok=True)
            _run([_found("npm"), "install", *_QUIET, f"{name}@{version}"], home)
            done.touch()
    return package


def node_program() -> str:
    """Return the path of Node, which every package needs."""
    return _found("node")


def _require_node() -> None:
    """Install Node if this is allowed; otherwise raise an error that names the package."""
    if shutil.which("node") and shutil.which("npm"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotInstalledError(
            "the tests need node and npm; as root: "
            f"apt-get install -y --no-install-recommends {' '.join(_PACKAGES)}"
        )
    _run(["apt-get", "update"], Path("/"))
    _run(["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES], Path("/"))


def _found(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(f"the tests need {name}, which is not on the path")
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
        output = (done.stdout + done.stderr)[-2000:]
        raise NotInstalledError(f"{' '.join(words)} ended with {done.returncode}\n{output}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file, which is released when the process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
