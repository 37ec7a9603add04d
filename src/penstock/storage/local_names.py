"""Paths of this machine as keys, and what the system says when it cannot do as asked."""

import errno
import os
from pathlib import Path

from penstock.errors import Code, ExternalError

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
