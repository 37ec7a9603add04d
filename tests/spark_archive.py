"""An archive of the classes that Spark loads, with which its JVMs start in half the time.

Tests start dozens of JVMs that live for seconds, most of which go into reading the same classes
anew. ``make test`` has the archive made once; a JVM that it does not fit goes without it.
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
# Read by Spark's launcher, for the JVM of the driver alone.
_VARIABLE = "SPARK_SUBMIT_OPTS"
_PATIENCE_SECONDS = 120
# Plans would make the archive slower to make and to use than most JVMs could ever win.
_STATEMENTS = """
CREATE TABLE t (id BIGINT NOT NULL);
CREATE JOB j ON STREAMING DO INSERT INTO t SELECT id FROM
FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')
"""


def use_archive() -> None:
    """Let every JVM of Spark that this process or a child of it starts use the archive."""
    if _TOP.exists():
        # A JVM that cannot use it says so on its standard output.
        os.environ[_VARIABLE] = f"-XX:SharedArchiveFile={_BASE}:{_TOP} -Xlog:disable"


def make_archive() -> None:
    """Make the archive, of what Spark loads while it does a bit of work."""
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
        spark = executor._running()
        spark.context.stop()
        assert spark.jvm.stdin is not None
        spark.jvm.stdin.close()
        # The JVM writes the archive at its end.
        spark.jvm.wait(_PATIENCE_SECONDS)


def _work(root: Path, executor: SparkExecutor) -> None:
    folder = root / "in"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps({"id": 1}) + "\n")
    node = Node(root / "home", spark=executor)
    node.sql(_STATEMENTS.format(folder=folder))
    node.run()
    node.catalog.close()


if __name__ == "__main__":
    make_archive()
