"""An archive of the classes that Spark loads; it halves the start time of JVMs.

Tests start dozens of short-lived JVMs, which spend most of their time loading the same classes.
``make test`` creates the archive once. A JVM that does not match the archive ignores it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.spark.executor import SparkExecutor
from penstock.spark.java import java_home
from penstock.spark.session import SparkOptions
from tests.node import Node

_BASE, _TOP = Path(sys.prefix) / "java.jsa", Path(sys.prefix) / "spark.jsa"
# Read by Spark's launcher, only for the JVM of the driver.
_VARIABLE = "SPARK_SUBMIT_OPTS"
_TIMEOUT_SECONDS = 120
# Query plans would add more time for creating and loading the archive than most JVMs could
# save.
_STATEMENTS = """
CREATE TABLE t (id BIGINT NOT NULL);
CREATE JOB j ON STREAMING DO INSERT INTO t SELECT id FROM
FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')
"""


def use_archive() -> None:
    """Configure all Spark JVMs of this process and its children to use the archive."""
    if _TOP.exists():
        # Without this option, a JVM that cannot use the archive would print a warning.
        os.environ[_VARIABLE] = f"-XX:SharedArchiveFile={_BASE}:{_TOP} -Xlog:disable"


def create_archive() -> None:
    """Create the archive from the classes that Spark loads during a small job."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        java = java_home(scratch=root) / "bin" / "java"
        dump = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={_BASE}"]
        subprocess.run(dump, check=True, capture_output=True)
        os.environ[_VARIABLE] = f"-XX:SharedArchiveFile={_BASE} -XX:ArchiveClassesAtExit={_TOP}"
        options = SparkOptions(
            master="local[2,4]", scratch=root / "tmp", log_file=root / "spark.log"
        )
        executor = SparkExecutor(options)
        _work(root, executor)
        spark = executor.running()
        spark.context.stop()
        assert spark.jvm.stdin is not None
        spark.jvm.stdin.close()
        # The JVM writes the archive when it exits.
        spark.jvm.wait(_TIMEOUT_SECONDS)


def _work(root: Path, executor: SparkExecutor) -> None:
    folder = root / "in"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps({"id": 1}) + "\n")
    node = Node(root / "home", spark=executor)
    node.sql(_STATEMENTS.format(folder=folder))
    node.run()
    node.catalog.close()


if __name__ == "__main__":
    create_archive()
