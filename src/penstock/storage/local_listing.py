"""Walk through folders of this machine in the byte order of the whole keys.

Invariant: within a folder a subfolder is sorted with the slash that follows its name in every
key below it: ``a-b`` comes before ``a/b``, because ``-`` comes before ``/``.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import ExternalError
from penstock.storage.local_names import (
    ABSENT,
    local_path,
    name_bytes,
    name_text,
    read_error,
    shown_key,
)
from penstock.storage.objects import FolderMissingError, Selection


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
