"""What a source of files asks of the file index, which is kept in the catalog."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol


class FileIndex(Protocol):
    """The files that one job has loaded."""

    def known(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Answer ETags by key of those files among the given ones that were loaded."""
        ...

    def newest(self, prefix: str) -> str:
        """Answer the largest loaded key below a prefix; empty if there is none."""
        ...

    @property
    def pruned_before(self) -> datetime | None:
        """The time before which files were written that the index has forgotten."""
        ...

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        """Forget the files that were written before a time, except the newest of prefixes."""
        ...
