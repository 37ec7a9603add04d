"""The penstock command whose tasks run in its own process, by the executor of the tests.

Everything else is the product's: settings, wiring, supervisor, foreground and crash points. It
is there at once, where Spark takes ten seconds.
"""

import atexit
import os
import sys
from pathlib import Path

from penstock import cli
from penstock.spark import executor
from penstock.spark.session import SparkOptions
from penstock.testing.executor import InProcessExecutor

# What a run imports when it gets there.
NEEDED = (
    "penstock.app",
    "penstock.control.executor",
    "penstock.foreground",
    "penstock.supervisor.supervisor",
    "penstock.engine.task",
    "penstock.tables.delta",
    "penstock.storage.bucket",
    "penstock.warehouse",
    "cryptography.fernet",
    "boto3",
    "deltalake",
    "obstore",
    "pyarrow.json",
    "pyarrow.parquet",
    "rich.live",
    "sqlalchemy",
    "structlog",
)


class WithoutSpark(InProcessExecutor):
    """Made and stopped as Spark is."""

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        del options

    def stop(self) -> None:
        """Have nothing to stop."""


def run(arguments: list[str], said: str, environment: dict[str, str]) -> None:
    """Be the penstock command, in a process of its own, with everything it says in a file."""
    os.environ.clear()
    os.environ.update(environment)
    with Path(said).open("ab") as output, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    executor.SparkExecutor = WithoutSpark  # type: ignore[assignment,misc]
    sys.argv = ["penstock", *arguments]
    try:
        cli.main()
    finally:
        # A forked process ends without what others do at their end.
        atexit._run_exitfuncs()
