"""The penstock command whose tasks run in its own process, by the executor of the tests.

Everything else is the product's: settings, wiring, supervisor, foreground and crash points. It
is there at once, where Spark takes ten seconds.
"""

from penstock.spark import executor
from penstock.spark.session import SparkOptions
from penstock.testing.executor import InProcessExecutor


class WithoutSpark(InProcessExecutor):
    """Made and stopped as Spark is."""

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        del options

    def stop(self) -> None:
        """Have nothing to stop."""


def use_no_spark() -> None:
    """Let this process run tasks by itself."""
    executor.SparkExecutor = WithoutSpark  # type: ignore[assignment,misc]
