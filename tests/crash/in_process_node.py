"""The penstock command whose tasks run in its own process, by the executor of the tests.

Everything else is the product's: settings, wiring, supervisor, foreground and crash points. It
is there within a second, where Spark takes ten.
"""

from penstock import cli
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


def main() -> None:
    """Run the command line without Spark."""
    executor.SparkExecutor = WithoutSpark  # type: ignore[assignment,misc]
    cli.main()


if __name__ == "__main__":
    main()
