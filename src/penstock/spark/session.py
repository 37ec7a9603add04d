"""Start the one Spark of this node, quietly and bound to this machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import Code, ExternalError
from penstock.spark.java import java_home

JVM_END_SECONDS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Which Spark to use and where its files go."""

    master: str
    scratch: Path
    log_file: Path
    conf: Mapping[str, str] = field(default_factory=dict)


def start_context(options: SparkOptions) -> Any:  # noqa: ANN401 - pyspark carries no types here.
    """Start Spark and answer its context; the JVM's own words go to the log file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    options.scratch.mkdir(parents=True, exist_ok=True)
    options.log_file.parent.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(java_home(scratch=options.scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf(loadDefaults=False).setAll(list(_settings(options).items()))
    try:
        with options.log_file.open("ab") as log:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": log, "stderr": log}
            )
        context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise ExternalError(
            f'Spark on "{options.master}" did not start: {error}',
            code=Code.SPARK_ERR,
            hint=f"See {options.log_file}.",
        ) from error
    return context


def stop_context(context: Any) -> None:  # noqa: ANN401 - pyspark carries no types here.
    """Stop Spark and end its JVM, so that this process may start another one."""
    from pyspark import SparkContext

    sockets = context.getConf().get("spark.python.unix.domain.socket.dir")
    context.stop()
    # pyspark would keep the JVM until the process ends, and use it for the next context.
    gateway = SparkContext._gateway  # noqa: SLF001 - There is no public way.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()
        _end(gateway.proc)
    shutil.rmtree(sockets, ignore_errors=True)


def _end(jvm: "subprocess.Popen[bytes]") -> None:
    if jvm.stdin is not None:
        # The JVM ends when nobody can speak to it any more.
        jvm.stdin.close()
    try:
        jvm.wait(JVM_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _settings(options: SparkOptions) -> dict[str, str]:
    return {
        "spark.master": options.master,
        "spark.app.name": "penstock",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(options.scratch),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        # A path of a Unix socket may have about a hundred bytes, so the folder's is short.
        "spark.python.unix.domain.socket.dir": tempfile.mkdtemp(prefix="pst-"),
        **options.conf,
    }
