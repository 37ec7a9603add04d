"""A new file of this machine while it is being written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from penstock.errors import InvariantError
from penstock.storage.objects import storage_error

_FOLDER_TRIES_MAX = 5


class LocalFile:
    """A file below a folder; folders on the way to it are made."""

    def __init__(self, root: Path, name: str) -> None:
        self._made: list[Path] = []
        self.path = root / name
        with _writing(self.path):
            self._begin(root, name, tries_left=_FOLDER_TRIES_MAX)
            self._sink = pa.OSFile(str(self.path), "wb")

    @property
    def file(self) -> IO[bytes]:
        """Where the bytes go."""
        return self._sink  # type: ignore[return-value] # What pyarrow asks of a file is there.

    def finish(self) -> int:
        """Complete the file and make its bytes durable; its name is another matter."""
        with _writing(self.path):
            self._sink.close()
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    def abort(self) -> None:
        """Remove the file, and the folders made for it that are empty."""
        with suppress(OSError, pa.ArrowException):
            self._sink.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _begin(self, root: Path, name: str, *, tries_left: int) -> None:
        try:
            folder = root
            for part in Path(name).parts[:-1]:
                folder /= part
                with suppress(FileExistsError):
                    folder.mkdir()
                    self._made.append(folder)
            self.path.touch(exist_ok=False)
        except FileNotFoundError:
            # Another writer may have removed the folder that it had made for itself.
            if not tries_left:
                raise
            self._begin(root, name, tries_left=tries_left - 1)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise InvariantError(f'data file "{error.filename or path}" exists already') from error
    except OSError as error:
        fact = f'data file "{error.filename or path}" could not be written'
        raise storage_error(fact, error) from error
