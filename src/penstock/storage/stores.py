"""Open the store that a URI names: ``file://`` now, buckets behind the same protocol later."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import BufferedIOBase
from typing import Protocol

from penstock.errors import Code, UserError
from penstock.storage.local import LocalStore
from penstock.storage.objects import ObjectMeta, Selection

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES_LATER = frozenset({"s3", "s3a", "s3n", "gs", "az", "abfs", "abfss"})
_EXAMPLE = "Write it like file:///data/in/*.json, with three slashes and the whole path."


class Store(Protocol):
    """Files or a bucket: list, read, write.

    The driver lists and writes, tasks read; a store is therefore a value that survives
    pickling and may be used from several threads at once. Every method raises ExternalError
    when the storage fails, and never anything of its library.
    """

    def list(self, prefix: str, *, selection: Selection) -> Iterator[ObjectMeta]:
        """Yield the selected objects below a prefix in the byte order of their UTF-8 keys.

        The prefix is empty or ends with a slash. Memory does not grow with the number of
        objects, only with the largest folder. An object that comes or goes meanwhile may or
        may not be seen; every other one is seen exactly once.
        """
        ...

    def open(self, key: str, *, etag: str) -> AbstractContextManager[BufferedIOBase]:
        """Open exactly the object that was listed, to read and to seek.

        Raises ObjectMissingError or ObjectChangedError at once when the key names nothing or
        another object now. When the object changes while it is being read, leaving the block
        raises ObjectChangedError, also in place of an error of the block itself. What is made
        of the bytes must not be kept before the block has been left.
        """
        ...

    def read_bytes(self, key: str) -> bytes:
        """Read a whole, small object; raise ObjectMissingError when there is none."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Put the object in place, durably; readers see the old one or all of the new one."""
        ...

    def write_new(self, key: str, content: bytes) -> bool:
        """Put the object in place unless the key is taken; answer whether this call did it.

        Of several writers at once exactly one is answered True.
        """
        ...

    def exists(self, key: str) -> bool:
        """Answer whether the key names an object."""
        ...


def open_store(uri: str) -> tuple[Store, str]:
    """Split a URI into its store and the pattern of keys in it.

    The path is taken literally, nothing is percent-decoded, and ``?`` and ``#`` have no
    meaning of a URI: users type patterns with ``[``, ``{`` and ``?`` in them, and a file may
    well be called ``100%25.json``.
    """
    scheme = _SCHEME.match(uri)
    if scheme is None:
        raise UserError(f'uri "{uri}" must begin with file://', hint=_EXAMPLE)
    name = scheme[1].lower()
    if name in _SCHEMES_LATER:
        raise UserError(
            f'uri "{uri}" is not supported yet, only file:// is',
            code=Code.NOT_SUPPORTED_ERR,
            hint="Copy the files to a folder that this machine can read.",
        )
    if name != "file":
        raise UserError(f'uri "{uri}" must begin with file://, not {name}://', hint=_EXAMPLE)
    return LocalStore(), _local_pattern(uri, uri[scheme.end() :])


def _local_pattern(uri: str, pattern: str) -> str:
    if not pattern.startswith("/"):
        raise UserError(
            f'uri "{uri}" must go on with an absolute path after file://',
            detail="What stands before the third slash is a host, and it must be empty.",
            hint=_EXAMPLE,
        )
    if {"", ".", ".."} & set(pattern[1:].removesuffix("/").split("/")) and pattern != "/":
        raise UserError(
            f'path "{pattern}" must not hold an empty part, "." or ".."',
            detail="A file is known by its path, so that one file must not have two of them.",
            hint=_EXAMPLE,
        )
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in pattern):
        shown = pattern.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        raise UserError(f'path "{shown}" must be Unicode text without NUL')
    return pattern
