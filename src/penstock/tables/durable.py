"""Make what was written survive a power cut, and say so when it cannot be written."""

import os
from pathlib import Path

from penstock.errors import Code, ExternalError


def sync(path: Path) -> None:
    """Return when the file's bytes, or the folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_error(fact: str, error: BaseException) -> ExternalError:
    """Wrap what the storage said into an error that is tried again."""
    # What follows the first line is the stack of a library.
    said = str(error).strip().partition("\n")[0].rstrip(".")
    return ExternalError(
        fact,
        code=Code.STORAGE_ERR,
        detail=f"{said or type(error).__name__}.",
        hint="Check the free space of the disk and the rights of the user that runs Penstock.",
    )
