"""Files of this machine as a store; a key is an absolute path.

Invariant: within a folder a subfolder is sorted with the slash that follows its name in every
key below it: ``a-b`` comes before ``a/b``, because ``-`` comes before ``/``.

Invariant: a listing is in the byte order of the whole keys. Within a folder a subfolder is
therefore sorted with the slash that follows its name in every key below it: ``a-b`` comes
before ``a/b``, because ``-`` comes before ``/``.

The ETag is made of inode, modification time and size. An edit in place that keeps the size
and sets the modification time back cannot be noticed.
"""

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BufferedIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from penstock.errors import Code, ExternalError, InvariantError
from penstock.storage.store import (
    FolderMissingError,
    ObjectChangedError,
    ObjectMeta,
    ObjectMissingError,
    Selection,
    storage_error,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The name is gone, or a link leads nowhere: nothing is there to be listed.
ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

_HINT_BY_ERRNO = {
    errno.EACCES: "Give the user that runs Penstock the right to it.",
    errno.EPERM: "Give the user that runs Penstock the right to it.",
    errno.EROFS: "Mount the file system for writing, or choose another folder.",
    errno.ENOSPC: "Free some space on the disk, or choose another folder.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


def read_error(kind: str, key: str, error: OSError) -> ExternalError:
    """Say that something could not be read."""
    return local_error(f'{kind} "{shown_key(key)}" could not be read', error)


def write_error(key: str, error: OSError) -> ExternalError:
    """Say that a file could not be written."""
    fact = f'file "{shown_key(key)}" could not be written'
    return local_error(fact, error, code=Code.STORAGE_ERR)


def local_error(
    fact: str, error: OSError, *, code: Code = Code.GET_REMOTE_DATA_ERROR
) -> ExternalError:
    """Say what the system answered, with what may help."""
    number = error.errno or errno.EIO
    reason = os.strerror(number).lower()
    return ExternalError(f"{fact}: {reason}", code=code, hint=_HINT_BY_ERRNO.get(number, ""))


# Names on disk are bytes and keys are their UTF-8, whatever the locale says.


def name_bytes(key: str) -> bytes:
    """Answer the name on disk."""
    return key.encode("utf-8", "surrogateescape")


def name_text(name: bytes) -> str:
    """Answer a name on disk as text; odd bytes become lone surrogates."""
    return name.decode("utf-8", "surrogateescape")


def local_path(key: str) -> Path:
    """Answer the path that a key names."""
    return Path(os.fsdecode(name_bytes(key)))


def shown_key(key: str) -> str:
    """Write a key for people, odd bytes as escapes."""
    return name_bytes(key).decode("utf-8", "backslashreplace")


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


def walk(prefix: str, selection: Selection) -> Iterator[str]:
    """Yield the selected keys below a folder, depth first; some may be no regular files."""
    # A stack instead of recursion: a tree may be deeper than Python's calls may nest.
    stack = [_first_folder(prefix, selection)]
    while stack:
        folder = stack[-1]
        if not folder.names:
            stack.pop()
            continue
        key = folder.key + name_text(folder.names.pop())
        if not key.endswith("/"):
            yield key
            continue
        deeper = _folder(key, selection)
        # A link may lead back to a folder that is being walked already.
        if deeper is not None and all(deeper.identity != above.identity for above in stack):
            stack.append(deeper)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    key: str
    identity: tuple[int, int]
    names: list[bytes]
    """What is left to visit, the next one last; subfolders end with a slash."""


def _first_folder(prefix: str, selection: Selection) -> _Folder:
    folder = _folder(prefix, selection)
    if folder is None:
        path = local_path(prefix)
        fact = f'"{shown_key(prefix)}" is not a folder'
        if not path.exists():
            fact = f'folder "{shown_key(prefix)}" does not exist'
        raise FolderMissingError(fact, hint="Create the folder, or correct the path.")
    return folder


def _folder(key: str, selection: Selection) -> _Folder | None:
    """Read the names of a folder that are worth a visit; answer None when it is none."""
    try:
        with os.scandir(name_bytes(key)) as entries:
            names = [name for entry in entries if (name := _wanted(key, entry, selection))]
        status = local_path(key).stat()
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error("folder", key, error) from error
    names.sort(reverse=True)
    return _Folder(key=key, identity=(status.st_dev, status.st_ino), names=names)


def _wanted(folder: str, entry: os.DirEntry[bytes], selection: Selection) -> bytes | None:
    key = folder + name_text(entry.name)
    try:
        deeper = entry.is_dir()
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    if deeper:
        return entry.name + b"/" if selection.may_contain(key + "/") else None
    if not selection.matches(key):
        return None
    _expect_unicode(key)
    return entry.name


def _expect_unicode(key: str) -> None:
    if not key.isascii() and any("\udc80" <= char <= "\udcff" for char in key):
        folder, _, name = key.rpartition("/")
        raise ExternalError(
            f'file name "{shown_key(name)}" in folder "{shown_key(folder)}" is not UTF-8',
            hint="Rename the file, or write the pattern so that it does not match it.",
        )


_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_MAX = (datetime.max.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(
    microseconds=1
)


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files of this machine, by absolute path."""

    @property
    def requests(self) -> int:
        """Nothing is sent anywhere."""
        return 0

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected files below a folder in byte order, following links."""
        for key in walk(prefix, selection):
            meta = _look_at(key) if key > after else None
            if meta is not None:
                yield meta

    @contextmanager
    def open(self, key: str, *, etag: str | None) -> Iterator[BufferedIOBase]:
        """Open exactly the file that was listed; leaving the block checks it again."""
        descriptor = _open_descriptor(key)
        try:
            etag = etag or _etag(os.fstat(descriptor))
            _expect_same(key, descriptor, etag)
            try:
                with io.BufferedReader(_NamedFile(descriptor, key)) as stream:
                    yield stream
            finally:
                # Also after an error: a complaint about bytes that changed under the reader
                # is not about the file.
                _expect_same(key, descriptor, etag)
        finally:
            os.close(descriptor)

    def prepare(self, key: str, *, etag: str) -> None:
        """Do nothing: a file is at hand."""

    def read_bytes(self, key: str) -> bytes:
        """Read a whole file."""
        descriptor = _open_descriptor(key)
        try:
            return _NamedFile(descriptor, key).readall()
        finally:
            os.close(descriptor)

    def write(self, key: str, content: bytes) -> None:
        """Replace or create the file atomically and durably."""
        target = local_path(key)
        try:
            with _written_beside(target, content) as written:
                written.replace(target)
        except OSError as error:
            raise write_error(key, error) from error

    def write_new(self, key: str, content: bytes) -> bool:
        """Create the file atomically and durably unless the path is taken."""
        target = local_path(key)
        try:
            with _written_beside(target, content) as written:
                # Unlike a rename, a link refuses a path that is taken.
                target.hardlink_to(written)
        except FileExistsError:
            return False
        except OSError as error:
            raise write_error(key, error) from error
        return True

    def make_folder(self, folder: str) -> None:
        """Make a folder, durably, with those above it."""
        try:
            _create_folder(local_path(folder))
        except OSError as error:
            raise local_error(
                f'folder "{shown_key(folder)}" cannot be made', error, code=Code.STORAGE_ERR
            ) from error

    def create(self, folder: str, name: str) -> LocalFile:
        """Begin a file below a folder."""
        return LocalFile(local_path(folder), name)

    def sync(self, keys: Iterable[str]) -> None:
        """Return when the bytes of files, or the names in folders, are on the disk."""
        for key in keys:
            try:
                _sync(local_path(key))
            except OSError as error:
                raise write_error(key, error) from error

    def head(self, key: str) -> ObjectMeta | None:
        """Answer what a listing would say of the file."""
        return _look_at(key)

    def is_folder(self, folder: str) -> bool:
        """Tell whether there is such a folder."""
        try:
            return stat.S_ISDIR(local_path(folder).stat().st_mode)
        except OSError as error:
            if error.errno in ABSENT:
                return False
            raise read_error("folder", folder, error) from error

    def holds(self, folder: str) -> bool:
        """Tell whether anything lies in a folder."""
        try:
            with os.scandir(name_bytes(folder)) as entries:
                return next(entries, None) is not None
        except OSError as error:
            if error.errno in ABSENT:
                return False
            raise read_error("folder", folder, error) from error

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        """Remove a folder with everything in it."""
        folder = local_path(prefix)
        final = local_path(last) if last else folder
        if not self.is_folder(prefix):
            return
        try:
            for path in (*(p for p in folder.iterdir() if p != final), final):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                folder.rmdir()
        except OSError as error:
            raise local_error(
                f'folder "{shown_key(prefix)}" could not be removed',
                error,
                code=Code.STORAGE_ERR,
            ) from error


def _look_at(key: str) -> ObjectMeta | None:
    try:
        status = os.stat(name_bytes(key))  # noqa: PTH116 (pathlib has no paths of bytes)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error("file", key, error) from error
    if not stat.S_ISREG(status.st_mode):
        return None
    microseconds = min(status.st_mtime_ns // 1000, _MICROSECONDS_MAX)
    return ObjectMeta(
        key=key,
        etag=_etag(status),
        size_bytes=status.st_size,
        modified_at=_UNIX_EPOCH + timedelta(microseconds=microseconds),
    )


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _open_descriptor(key: str) -> int:
    try:
        # Without O_NONBLOCK a pipe in the file's place would be waited for.
        descriptor = os.open(name_bytes(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in ABSENT:
            raise ObjectMissingError(f'file "{shown_key(key)}" does not exist') from error
        raise read_error("file", key, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ObjectMissingError(f'"{shown_key(key)}" is not a file')
    return descriptor


def _expect_same(key: str, descriptor: int, etag: str) -> None:
    try:
        found = _etag(os.fstat(descriptor))
    except OSError as error:
        raise read_error("file", key, error) from error
    if found != etag:
        raise ObjectChangedError(
            f'file "{shown_key(key)}" was changed after it was listed',
            detail=f"Its ETag was {etag} and is {found}.",
            hint="Write files elsewhere and move them in when they are complete.",
        )


class _NamedFile(io.FileIO):
    """An open file whose failures name the key; closing it leaves the descriptor open."""

    def __init__(self, descriptor: int, key: str) -> None:
        super().__init__(descriptor, closefd=False)
        self._key = key

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise read_error("file", self._key, error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise read_error("file", self._key, error) from error


@contextmanager
def _written_beside(target: Path, content: bytes) -> Iterator[Path]:
    """Give a complete, durable file in the target's folder, and make what is done durable."""
    _create_folder(target.parent)
    # A dot name is matched by no wildcard; the length does not depend on the target's.
    written = target.parent / f".penstock-{uuid4().hex}.tmp"
    try:
        with written.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield written
    finally:
        written.unlink(missing_ok=True)
    _sync(target.parent)


def _create_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _create_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
