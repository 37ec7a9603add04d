"""A lock file in the home: free means that the process that held it has ended."""

import fcntl
import os
from pathlib import Path


class HomeLock:
    """The lock of one home, held until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody holds it; answer whether it is ours."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let another process have the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
