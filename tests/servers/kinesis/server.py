"""Kinesis server in its own process, used as a context manager."""

import subprocess
import sys
from types import TracebackType

from tests.servers.kinesis.control_client import KinesisControl

_STOP_SECONDS = 20


class KinesisServer:
    """Server process that stops at the end of the block, or when its parent process ends."""

    def __init__(self, *, port: int = 0) -> None:
        self._port = port
        self._process: subprocess.Popen[str] | None = None
        self._endpoint = ""

    @property
    def endpoint(self) -> str:
        """The endpoint URL for clients."""
        return self._endpoint

    @property
    def control(self) -> KinesisControl:
        """A client of the control commands."""
        return KinesisControl(self._endpoint)

    def start(self) -> None:
        """Start the process and wait until the server is ready."""
        command = [sys.executable, "-m", "tests.servers.kinesis", "--port", str(self._port)]
        self._process = subprocess.Popen(
            [*command, "--until-input-ends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._endpoint = self._first_line(self._process)

    def stop(self) -> None:
        """Stop the process; do nothing if no process runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> "KinesisServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        line = process.stdout.readline().strip() if process.stdout else ""
        if not line:
            self.stop()
            raise RuntimeError(f"the Kinesis server on port {self._port} did not start")
        return line
