"""What a store holds: objects, the choice among them, and what may be wrong with one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.errors import ExternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """One object as a listing saw it; the ETag changes whenever the content does."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


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
