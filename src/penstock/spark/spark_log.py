"""Keep what Spark says in a file that does not grow without end.

The JVM and the workers that it starts speak into a pipe, and pyspark through Python's logging;
one handler writes both, so that the file can be rotated below all of them.
"""

import logging
import os
from pathlib import Path
from threading import Thread
from typing import IO

from penstock.logs import FILE_BYTES_MAX, FILES_KEPT, rotating_file

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
