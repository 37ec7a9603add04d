"""Files of this machine as a store; a key is an absolute path.

Invariant: a listing is in the byte order of the whole keys. A subfolder is therefore sorted
with the slash that follows its name: ``a-b`` precedes ``a/b``, because ``-`` precedes ``/``.

The ETag consists of inode, modification time and size. An edit in place that keeps the size
and resets the modification time cannot be detected.
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

# The name does not exist, or a link is broken.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_HINT_BY_ERRNO = {
    errno.EACCES: "Allow the user that runs Penstock to access this path.",
    errno.EPERM: "Allow the user that runs Penstock to access this path.",
    errno.EROFS: "Mount the file system for writing, or choose another folder.",
    errno.ENOSPC: "Free some space on the disk, or choose another folder.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}
_FOLDER_ATTEMPTS_MAX = 5
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_MAX = (datetime.max.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(
    microseconds=1
)


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files of this machine by absolute path; listings follow links."""

    @property
    def requests(self) -> int:
        return 0

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        for key in _walk(prefix, selection):
            meta = self.head(key) if key > after else None
            if meta is not None:
                yield meta

    @contextmanager
    def open(self, key: str, *, etag: str | None) -> Iterator[BufferedIOBase]:
        descriptor = _open_descriptor(key)
        try:
            etag = etag or _etag(os.fstat(descriptor))
            _require_same(key, descriptor, etag)
            try:
                with io.BufferedReader(_NamedFile(descriptor, key)) as stream:
                    yield stream
            finally:
                # Checked after an error too: a change of the file may have caused the error.
                _require_same(key, descriptor, etag)
        finally:
            os.close(descriptor)

    def prefetch(self, key: str, *, etag: str) -> None:
        """Do nothing: a local file needs no prefetching."""

    def read_bytes(self, key: str) -> bytes:
        descriptor = _open_descriptor(key)
        try:
            return _NamedFile(descriptor, key).readall()
        finally:
            os.close(descriptor)

    def write(self, key: str, content: bytes) -> None:
        target = _path(key)
        with _write_failures("file", key), _durable_draft(target, content) as draft:
            draft.replace(target)

    def write_new(self, key: str, content: bytes) -> bool:
        target = _path(key)
        with _write_failures("file", key):
            try:
                with _durable_draft(target, content) as draft:
                    # Unlike a rename, a link fails if the path exists.
                    target.hardlink_to(draft)
            except FileExistsError:
                return False
        return True

    def create_folder(self, folder: str) -> None:
        with _write_failures("folder", folder, done="created"):
            _create_folder(_path(folder))

    def create(self, folder: str, name: str) -> "LocalFile":
        return LocalFile(_path(folder), name)

    def sync(self, keys: Iterable[str]) -> None:
        for key in keys:
            with _write_failures("file", key):
                _sync(_path(key))

    def head(self, key: str) -> ObjectMeta | None:
        try:
            status = os.stat(_name_bytes(key))  # noqa: PTH116 (pathlib has no paths of bytes)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise _read_error("file", key, error) from error
        if not stat.S_ISREG(status.st_mode):
            return None
        microseconds = min(status.st_mtime_ns // 1000, _MICROSECONDS_MAX)
        return ObjectMeta(
            key=key,
            etag=_etag(status),
            size_bytes=status.st_size,
            modified_at=_UNIX_EPOCH + timedelta(microseconds=microseconds),
        )

    def is_folder(self, folder: str) -> bool:
        with suppress(ObjectMissingError), _read_failures("folder", folder):
            return stat.S_ISDIR(_path(folder).stat().st_mode)
        return False

    def holds(self, folder: str) -> bool:
        with (
            suppress(ObjectMissingError),
            _read_failures("folder", folder),
            os.scandir(_name_bytes(folder)) as entries,
        ):
            return next(entries, None) is not None
        return False

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        folder = _path(prefix)
        final = _path(last) if last else folder
        if not self.is_folder(prefix):
            return
        with _write_failures("folder", prefix, done="deleted"):
            for path in (*(p for p in folder.iterdir() if p != final), final):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                folder.rmdir()


class LocalFile:
    """A new file below a folder; the subfolders in its name are created too."""

    def __init__(self, root: Path, name: str) -> None:
        self._created: list[Path] = []
        self.path = root / name
        with _data_file_failures(self.path):
            self._reserve(root, name, attempts_left=_FOLDER_ATTEMPTS_MAX)
            # OSFile has the methods that pyarrow needs.
            self.file: IO[bytes] = pa.OSFile(str(self.path), "wb")  # type: ignore[assignment]

    def finish(self) -> int:
        """Sync the file and return its size; the caller syncs the folder."""
        with _data_file_failures(self.path):
            self.file.close()
            _sync(self.path)
            return self.path.stat().st_size

    def abort(self) -> None:
        """Delete the file, and the folders that were created for it if they are empty."""
        with suppress(OSError, pa.ArrowException):
            self.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        for folder in reversed(self._created):
            with suppress(OSError):
                folder.rmdir()

    def _reserve(self, root: Path, name: str, *, attempts_left: int) -> None:
        try:
            folder = root
            for part in Path(name).parts[:-1]:
                folder /= part
                with suppress(FileExistsError):
                    folder.mkdir()
                    self._created.append(folder)
            self.path.touch(exist_ok=False)
        except FileNotFoundError:
            # Another writer may have aborted and deleted a folder that it had created.
            if not attempts_left:
                raise
            self._reserve(root, name, attempts_left=attempts_left - 1)


def _walk(prefix: str, selection: Selection) -> Iterator[str]:
    """Yield the selected keys below a folder, depth first, including those of special files."""
    # A stack instead of recursion: a tree may be deeper than the recursion limit.
    first = _read_folder(prefix, selection)
    if first is None:
        fact = f'"{_shown(prefix)}" is not a folder'
        if not _path(prefix).exists():
            fact = f'folder "{_shown(prefix)}" does not exist'
        raise FolderMissingError(fact, hint="Create the folder, or correct the path.")
    stack = [first]
    while stack:
        folder = stack[-1]
        if not folder.names:
            stack.pop()
            continue
        key = folder.key + _name_text(folder.names.pop())
        if not key.endswith("/"):
            yield key
            continue
        deeper = _read_folder(key, selection)
        # A link may point to a folder that contains it.
        if deeper is not None and all(deeper.identity != above.identity for above in stack):
            stack.append(deeper)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    key: str
    identity: tuple[int, int]
    # The names still to visit, in reverse order; subfolders end with a slash.
    names: list[bytes]


def _read_folder(key: str, selection: Selection) -> _Folder | None:
    """Read the names that may be selected; None if the folder does not exist."""
    with suppress(ObjectMissingError), _read_failures("folder", key):
        with os.scandir(_name_bytes(key)) as entries:
            names = [name for entry in entries if (name := _selected(key, entry, selection))]
        status = _path(key).stat()
        names.sort(reverse=True)
        return _Folder(key=key, identity=(status.st_dev, status.st_ino), names=names)
    return None


def _selected(folder: str, entry: os.DirEntry[bytes], selection: Selection) -> bytes | None:
    key = folder + _name_text(entry.name)
    try:
        deeper = entry.is_dir()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    if deeper:
        return entry.name + b"/" if selection.may_contain(key + "/") else None
    if not selection.matches(key):
        return None
    if not key.isascii() and any("\udc80" <= char <= "\udcff" for char in key):
        raise ExternalError(
            f'file name "{_shown(key[len(folder) :])}" in folder "{_shown(folder[:-1])}" '
            "is not UTF-8",
            hint="Rename the file, or change the pattern so that it does not match the file.",
        )
    return entry.name


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _open_descriptor(key: str) -> int:
    with _read_failures("file", key):
        # Without O_NONBLOCK, opening a named pipe would block.
        descriptor = os.open(_name_bytes(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ObjectMissingError(f'"{_shown(key)}" is not a file')
    return descriptor


def _require_same(key: str, descriptor: int, etag: str) -> None:
    with _read_failures("file", key):
        found = _etag(os.fstat(descriptor))
    if found != etag:
        raise ObjectChangedError(
            f'file "{_shown(key)}" was changed after it was listed',
            detail=f"The ETag changed from {etag} to {found}.",
            hint="Write files in another folder, and move them here when they are complete.",
        )


class _NamedFile(io.FileIO):
    """An open file whose errors name the key; closing it keeps the descriptor open."""

    def __init__(self, descriptor: int, key: str) -> None:
        super().__init__(descriptor, closefd=False)
        self._key = key

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        with _read_failures("file", self._key):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with _read_failures("file", self._key):
            return super().readall()


@contextmanager
def _durable_draft(target: Path, content: bytes) -> Iterator[Path]:
    """Yield a complete, synced temporary file in the target's folder; then sync the folder."""
    _create_folder(target.parent)
    # Wildcards do not match the leading dot. The name is short even if the target's is long.
    draft = target.parent / f".penstock-{uuid4().hex}.tmp"
    try:
        with draft.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
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


# Names on disk are bytes, and keys are their UTF-8 text in every locale. Bytes that are not
# UTF-8 become lone surrogates.


def _name_bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _name_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _path(key: str) -> Path:
    return Path(os.fsdecode(_name_bytes(key)))


def _shown(key: str) -> str:
    return _name_bytes(key).decode("utf-8", "backslashreplace")


@contextmanager
def _read_failures(kind: str, key: str) -> Iterator[None]:
    """Convert OSError; raise ObjectMissingError if the name does not exist."""
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise ObjectMissingError(f'{kind} "{_shown(key)}" does not exist') from error
        raise _read_error(kind, key, error) from error


@contextmanager
def _write_failures(kind: str, key: str, *, done: str = "written") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fact = f'{kind} "{_shown(key)}" could not be {done}'
        raise _system_error(fact, error, code=Code.STORAGE_ERR) from error


@contextmanager
def _data_file_failures(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise InvariantError(f'data file "{error.filename or path}" already exists') from error
    except OSError as error:
        fact = f'data file "{error.filename or path}" could not be written'
        raise storage_error(fact, error) from error


def _read_error(kind: str, key: str, error: OSError) -> ExternalError:
    return _system_error(
        f'{kind} "{_shown(key)}" could not be read', error, code=Code.GET_REMOTE_DATA_ERROR
    )


def _system_error(fact: str, error: OSError, *, code: Code) -> ExternalError:
    number = error.errno or errno.EIO
    reason = os.strerror(number).lower()
    return ExternalError(f"{fact}: {reason}", code=code, hint=_HINT_BY_ERRNO.get(number, ""))
