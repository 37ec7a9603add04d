"""A named pipe at which the tasks of a query wait.

Spark's Python workers import this module, so it imports little.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.functions import udf
from pyspark.sql.types import LongType


# Without type hints, because pyspark would interpret them as hints for pandas.
@udf(LongType())
def hold(value, path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the value, but not before the pipe is opened."""
    if Path(path).exists():
        Path(path).read_bytes()
    return value


@dataclass
class Pipe:
    """A pipe that is open until the test closes it."""

    path: Path
    _writers: list[int] = field(default_factory=list)

    def held(self, column: str) -> str:
        """Return an expression with the value of a column that waits at the pipe."""
        return f"hold({column}, '{self.path}')"

    def close(self) -> None:
        """Block all tasks that come from now on."""
        os.mkfifo(self.path)

    def reached(self) -> bool:
        """Return whether a task waits at the pipe."""
        if not self._writers:
            try:
                # Without a reader this fails. With a writer, readers wait for its end.
                self._writers.append(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
        return True

    def open(self) -> None:
        """End the wait of all tasks."""
        self.path.unlink(missing_ok=True)
        while self._writers:
            os.close(self._writers.pop())
