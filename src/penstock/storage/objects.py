"""What a store holds: objects, the choice among them, and what may be wrong with one."""

import re
from dataclasses import dataclass
from datetime import datetime
from io import BufferedIOBase
from typing import Protocol, runtime_checkable

from penstock.errors import Code, ExternalError
from penstock.storage.hiding import without

_STATUS = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]{1,40}[a-z])")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """One object as a listing saw it; the ETag changes whenever the content does."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


def read_ahead(stream: BufferedIOBase, begin: int, end: int) -> None:
    """Tell a stream what will be read next; one that is far away then fetches it early."""
    if isinstance(stream, ReadingAhead):
        stream.read_ahead(begin, end)


@runtime_checkable
class ReadingAhead(Protocol):
    """A stream to which it matters what will be read next."""

    def read_ahead(self, begin: int, end: int) -> None:
        """Take note that a range will be read."""
        ...


class Selection(Protocol):
    """Which keys a listing is about.

    A store asks before it looks closer, so that what is not wanted costs nothing and cannot
    fail the listing. Keys and folders are text; a name that is not UTF-8 arrives with its
    odd bytes as lone surrogates.
    """

    def matches(self, key: str) -> bool:
        """Answer whether the key is wanted."""
        ...

    def may_contain(self, folder: str) -> bool:
        """Answer whether a wanted key may lie below the folder, which ends with a slash."""
        ...


class ObjectChangedError(ExternalError):
    """The object is no longer the one that was planned; it is planned anew."""


class ObjectMissingError(ExternalError):
    """The object is gone; the plan is made anew without it."""


class FolderMissingError(ExternalError):
    """The folder to list does not exist, or is no folder."""


def told_by_server(text: str) -> str:
    """Answer status and code of a server's answer in a library's words; or nothing.

    Its message is left out: it may name the keys of whoever asked.
    """
    found = (pattern.search(text) for pattern in (_STATUS, _CODE))
    return ", ".join(dict.fromkeys(match[1].strip() for match in found if match))


def storage_error(
    fact: str, error: BaseException, *, hidden: tuple[str, ...] = ()
) -> ExternalError:
    """Wrap what the storage said, but for what is hidden, into an error that is tried again."""
    return ExternalError(
        fact,
        code=Code.STORAGE_ERR,
        detail=f"{said_by(error, hidden=hidden)}.",
        hint="Check the free space of the disk and the rights of the user that runs Penstock.",
    )


def said_by(error: BaseException, *, hidden: tuple[str, ...]) -> str:
    """Answer what the storage said, without what a server repeats of whoever asked."""
    said = told_by_server(str(error)) or str(error).strip().partition("\n")[0].rstrip(".")
    return without(said, hidden) or type(error).__name__
