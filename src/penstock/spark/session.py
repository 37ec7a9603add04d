"""Start the one Spark of this node, quietly and bound to this machine.

The JVM and the workers that it starts speak into a pipe, and pyspark through Python's logging;
one handler writes both, so that the file can be rotated below all of them.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Any

from penstock.errors import Code, ExternalError
from penstock.logs import FILE_BYTES_MAX, FILES_KEPT, rotating_file
from penstock.spark.java import java_home

_LINE_BYTES_MAX = 65_536
_LAST_WORDS_SECONDS_MAX = 5


class SparkLog:
    """The log of one Spark: a file that is rotated at its size, of which few are kept."""

    def __init__(
        self, path: Path, *, bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT
    ) -> None:
        # It is there even if nothing is ever said: errors name it.
        path.touch()
        self.handler = rotating_file(path, bytes_max=bytes_max, files_kept=files_kept)
        self._follower: Thread | None = None

    def follow(self) -> IO[bytes]:
        """Answer a pipe; what is written to it is kept, until nobody holds it any more."""
        read_end, write_end = os.pipe()
        said = os.fdopen(read_end, "rb")
        self._follower = Thread(target=self._keep, args=(said,), name="spark-log", daemon=True)
        self._follower.start()
        return os.fdopen(write_end, "wb")

    def close(self) -> None:
        """Keep the last words of a process that has ended, and close the file."""
        if self._follower is not None:
            # A worker that outlives its JVM holds the pipe open; it is not waited for.
            self._follower.join(_LAST_WORDS_SECONDS_MAX)
        self.handler.close()

    def _keep(self, said: IO[bytes]) -> None:
        with said:
            while line := said.readline(_LINE_BYTES_MAX):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                # The handler swallows its own errors: whoever speaks must not be held up.
                self.handler.handle(logging.makeLogRecord({"msg": text}))


JVM_END_SECONDS_MAX = 10
# Where the JVM only schedules, optimising its code and collecting in parallel costs the tasks'
# cores more than it ever returns, and doubles the time to start.
_SCHEDULES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_COMPUTES = "-XX:+UseParallelGC"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Which Spark to use and where its files go."""

    master: str
    scratch: Path
    log_file: Path
    # Whether a SELECT of a job runs inside Spark; otherwise the JVM only schedules.
    computing: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A Spark that was started: its context, its JVM, its log and the folder of its sockets."""

    context: Any
    jvm: "subprocess.Popen[bytes]"
    log: SparkLog
    sockets: Path
    parallelism: int

    @property
    def alive(self) -> bool:
        """Whether the JVM still runs, and the context in it."""
        if self.jvm.poll() is not None:
            return False
        try:
            return not self.context._jsc.sc().isStopped()  # noqa: SLF001 - No public way.
        except Exception:  # noqa: BLE001 - A JVM that does not answer is not alive.
            return False

    def sessions(self) -> Any:  # noqa: ANN401 - pyspark carries no types here.
        """Answer the session from which others are made; the first time takes a second."""
        from pyspark.sql import SparkSession

        return SparkSession(self.context)

    def stop(self) -> None:
        """Stop Spark and end its JVM, so that this process may start another one."""
        if self.alive:
            self.context.stop()
        else:
            _tidy_up(self.context)
        _end(self.jvm)
        self.log.close()
        shutil.rmtree(self.sockets, ignore_errors=True)


def start_spark(options: SparkOptions) -> Spark:
    """Start Spark; the JVM's own words go to the log file."""
    from pyspark import SparkConf, SparkContext

    sockets = _make_folders(options)
    log = SparkLog(options.log_file)
    _keep_chatter(log)
    os.environ["JAVA_HOME"] = str(java_home(scratch=options.scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # pyspark would use the JVM of an earlier Spark once more, although that has ended.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - There is no public way.
    settings = _settings(options, sockets=sockets)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    jvm: subprocess.Popen[bytes] | None = None
    try:
        jvm, gateway = _launch(conf, log)
        context = SparkContext(conf=conf, gateway=gateway)
        return Spark(
            context=context,
            jvm=jvm,
            log=log,
            sockets=sockets,
            parallelism=int(context.defaultParallelism),
        )
    except Exception as error:
        # An error of the JVM asks it for its words, so they are taken while it lives.
        reason = cause_of(error)
        if jvm is not None:
            _end(jvm)
        log.close()
        shutil.rmtree(sockets, ignore_errors=True)
        raise ExternalError(
            f'Spark on "{options.master}" did not start: {reason}',
            code=Code.SPARK_ERR,
            hint=f"See {options.log_file}.",
        ) from error


def _launch(conf: Any, log: SparkLog) -> tuple["subprocess.Popen[bytes]", Any]:  # noqa: ANN401 - pyspark carries no types here.
    """Start a JVM whose words go to the log; answer it, and how it is spoken to."""
    from pyspark.java_gateway import launch_gateway

    # Followed from the first word on: a JVM that does not start says why.
    with log.follow() as pipe:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf, popen_kwargs={"stdout": pipe, "stderr": pipe}
        )
    return gateway.proc, gateway


def _keep_chatter(log: SparkLog) -> None:
    """Send the stacks of pyspark and py4j to Spark's file: a JVM's end makes many."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(log.handler)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _log_error  # type: ignore[assignment,method-assign]


def _log_error(server: object, *request: object) -> None:
    del request
    logging.getLogger("pyspark").error("%s failed", type(server).__name__, exc_info=True)


def cause_of(error: Exception) -> str:
    """Answer the line of a Spark error that says what happened, without the stacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if "Error: " in line or "Exception: " in line]
    python = [
        line for line in raised if not line.startswith(("at ", "org.", "py4j.", "Caused"))
    ]
    return (python or raised or lines or ["no reason given"])[-1][:500].strip(" :.")


def _make_folders(options: SparkOptions) -> Path:
    """Make the folders that Spark needs; answer the one of its sockets."""
    try:
        options.scratch.mkdir(parents=True, exist_ok=True)
        options.log_file.parent.mkdir(parents=True, exist_ok=True)
        # A path of a Unix socket may have about a hundred bytes, so the folder's is short.
        return Path(tempfile.mkdtemp(prefix=_sockets_prefix(options.scratch)))
    except OSError as error:
        raise ExternalError(
            f"Spark's folders cannot be made: {error}",
            code=Code.STORAGE_ERR,
            hint="Free some space, or give the user that runs Penstock the right to them.",
        ) from error


def clear_leftovers(scratch: Path) -> None:
    """Remove what killed processes of this home left; only for the sole process of a home."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_sockets_prefix(scratch)}*"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def _sockets_prefix(scratch: Path) -> str:
    return f"pst-{hashlib.sha256(str(scratch).encode()).hexdigest()[:8]}-"


def _tidy_up(context: Any) -> None:  # noqa: ANN401 - pyspark carries no types here.
    """Let pyspark forget a context whose JVM has ended."""
    # It first fails to reach the JVM; the second time it only cleans up after itself.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        context.stop()
    context.stop()


def _end(jvm: "subprocess.Popen[bytes]") -> None:
    if jvm.stdin is not None:
        # The JVM ends when nobody can speak to it any more.
        jvm.stdin.close()
    try:
        jvm.wait(JVM_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _settings(options: SparkOptions, *, sockets: Path) -> dict[str, str]:
    return {
        "spark.master": options.master,
        "spark.app.name": "penstock",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": _COMPUTES if options.computing else _SCHEDULES,
        "spark.local.dir": str(options.scratch),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        **options.conf,
    }
