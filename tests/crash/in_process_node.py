"""The penstock command with the in-process executor of the tests instead of Spark.

Everything else is the product: settings, wiring, supervisor, foreground and crash points. The
command starts at once; Spark needs ten seconds.
"""

from penstock.spark import executor
from penstock.spark.session import SparkOptions
from penstock.testing.executor import InProcessExecutor


class WithoutSpark(InProcessExecutor):
    """An executor with the constructor and ``stop`` of the Spark executor."""

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        del options

    def stop(self) -> None:
        """Do nothing."""


def use_no_spark() -> None:
    """Replace the Spark executor in this process."""
    executor.SparkExecutor = WithoutSpark  # type: ignore[assignment,misc]
