"""Start the Spark of this node, bound to this machine, with its output in a log file.

The JVM and its workers write to a pipe; pyspark writes to Python's logging. One handler writes
both to the file, so the file can be rotated.
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
from penstock.logs import FILE_BYTES_MAX, FILES_RETAINED, rotating_file
from penstock.spark.java import java_home

_LINE_BYTES_MAX = 65_536
_OUTPUT_END_SECONDS_MAX = 5


class SparkLog:
    """The log of one Spark: a file that is rotated by size, with a few old files."""

    def __init__(self, path: Path) -> None:
        # Error messages name the file, so it must exist even without output.
        path.touch()
        self.handler = rotating_file(
            path, bytes_max=FILE_BYTES_MAX, files_retained=FILES_RETAINED
        )
        self._thread: Thread | None = None

    def follow(self) -> IO[bytes]:
        """Return a pipe; log its lines until every process has closed it."""
        read_end, write_end = os.pipe()
        output = os.fdopen(read_end, "rb")
        self._thread = Thread(target=self._log, args=(output,), name="spark-log", daemon=True)
        self._thread.start()
        return os.fdopen(write_end, "wb")

    def close(self) -> None:
        """Log the last output of a process that has ended, and close the file."""
        if self._thread is not None:
            # A worker that outlives its JVM keeps the pipe open, so the wait is limited.
            self._thread.join(_OUTPUT_END_SECONDS_MAX)
        self.handler.close()

    def _log(self, output: IO[bytes]) -> None:
        with output:
            while line := output.readline(_LINE_BYTES_MAX):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                # The handler ignores its own errors, because the writers must not block.
                self.handler.handle(logging.makeLogRecord({"msg": text}))


JVM_END_SECONDS_MAX = 10
# If the JVM only schedules, the optimising compiler and parallel garbage collection are not
# worth their cost. Both use the cores of the tasks, and double the start time.
_SCHEDULING = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_COMPUTING = "-XX:+UseParallelGC"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The master, the paths of files, and further settings of Spark."""

    master: str
    scratch: Path
    log_file: Path
    # Whether a job's SELECT runs inside Spark; otherwise the JVM only schedules.
    computing: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A started Spark: its context, its JVM, its log and the folder of its sockets."""

    context: Any
    jvm: "subprocess.Popen[bytes]"
    log: SparkLog
    sockets: Path
    parallelism: int

    @property
    def alive(self) -> bool:
        """Whether the JVM and its context still run."""
        if self.jvm.poll() is not None:
            return False
        try:
            return not self.context._jsc.sc().isStopped()  # noqa: SLF001 - No public way.
        except Exception:  # noqa: BLE001 - A JVM that does not respond is not alive.
            return False

    def sessions(self) -> Any:  # noqa: ANN401 - pyspark carries no types here.
        """Return the root session of all other sessions; the first call takes a second."""
        from pyspark.sql import SparkSession

        return SparkSession(self.context)

    def stop(self) -> None:
        """Stop Spark and end its JVM, so that this process can start another one."""
        if not self.alive:
            # The first call fails, as the JVM has ended. The next call discards the context.
            with suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                self.context.stop()
        self.context.stop()
        _end(self.jvm)
        self.log.close()
        shutil.rmtree(self.sockets, ignore_errors=True)


def start_spark(options: SparkOptions) -> Spark:
    """Start Spark, with the output of the JVM in the log file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    sockets = _create_folders(options)
    log = SparkLog(options.log_file)
    _redirect_logging(log)
    os.environ["JAVA_HOME"] = str(java_home(scratch=options.scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Otherwise pyspark would use the JVM of an earlier Spark, which has ended.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - There is no public API.
    settings = _settings(options, sockets=sockets)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    jvm: subprocess.Popen[bytes] | None = None
    try:
        # The pipe must exist first, because a JVM that does not start prints the reason.
        with log.follow() as pipe:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": pipe, "stderr": pipe}
            )
        jvm = gateway.proc
        context = SparkContext(conf=conf, gateway=gateway)
        return Spark(
            context=context,
            jvm=jvm,
            log=log,
            sockets=sockets,
            parallelism=int(context.defaultParallelism),
        )
    except Exception as error:
        # The message of a Java error comes from the JVM, so it is read before the JVM ends.
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


def _redirect_logging(log: SparkLog) -> None:
    """Send the logs of pyspark and py4j, such as stacks when a JVM ends, to Spark's file."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    def log_error(server: object, *_request: object) -> None:
        logging.getLogger("pyspark").error("%s failed", type(server).__name__, exc_info=True)

    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(log.handler)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = log_error  # type: ignore[assignment,method-assign]


def cause_of(error: Exception) -> str:
    """Return the line of a Spark error that names the cause, without stacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if "Error: " in line or "Exception: " in line]
    python = [
        line for line in raised if not line.startswith(("at ", "org.", "py4j.", "Caused"))
    ]
    return (python or raised or lines or ["unknown reason"])[-1][:500].strip(" :.")


def _create_folders(options: SparkOptions) -> Path:
    """Create the folders that Spark needs; return the folder of its sockets."""
    try:
        options.scratch.mkdir(parents=True, exist_ok=True)
        options.log_file.parent.mkdir(parents=True, exist_ok=True)
        # The path of a Unix socket is limited to about 100 bytes, so the name is short.
        return Path(tempfile.mkdtemp(prefix=_sockets_prefix(options.scratch)))
    except OSError as error:
        raise ExternalError(
            f"the folders of Spark cannot be created: {error}",
            code=Code.STORAGE_ERR,
            hint="Free disk space, or grant write permission to the user that runs Penstock.",
        ) from error


def remove_stale_files(scratch: Path) -> None:
    """Delete the files of killed processes; call this only as the sole process of a home."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_sockets_prefix(scratch)}*"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def _sockets_prefix(scratch: Path) -> str:
    return f"pst-{hashlib.sha256(str(scratch).encode()).hexdigest()[:8]}-"


def _end(jvm: "subprocess.Popen[bytes]") -> None:
    if jvm.stdin is not None:
        # The JVM ends when its standard input is closed.
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
        "spark.driver.extraJavaOptions": _COMPUTING if options.computing else _SCHEDULING,
        "spark.local.dir": str(options.scratch),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # With FAIR and many jobs, the longest wait of a small epoch is several times longer.
        "spark.scheduler.mode": "FIFO",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        **options.conf,
    }
