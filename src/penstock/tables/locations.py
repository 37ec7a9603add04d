"""Where a table lies: a location as people write it, and the folder that it names.

The path after ``file://`` is taken literally, nothing is percent-decoded, as in the sources.
"""

import os
import re
import secrets
from pathlib import Path

from penstock.errors import Code, UserError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_MAX = 100


def table_path(location: str) -> Path:
    """Answer the folder that a location names: an absolute path or ``file:///…``."""
    scheme = _SCHEME.match(location)
    if scheme is not None and scheme[1].lower() != "file":
        raise UserError(
            f'location "{location}" is not supported, only local folders are',
            code=Code.NOT_SUPPORTED_ERR,
            hint="Write an absolute path, or file:/// followed by one.",
        )
    path = os.path.normpath(location.removeprefix("file://"))
    if not path.startswith("/") or path == "/":
        raise UserError(
            f'location "{location}" must be the absolute path of a folder',
            hint="Write it like /data/orders or file:///data/orders.",
        )
    if "%" in path:
        # delta-rs would decode it and read another folder.
        raise UserError(f'location "{location}" must not have a percent sign in it')
    return Path(path)


def new_folder(warehouse: Path, name: str) -> Path:
    """Answer a folder that no other table has had: two tables of one name never share one."""
    safe = _UNSAFE.sub("_", name)[:_NAME_MAX]
    return warehouse.absolute() / f"{safe}-{secrets.token_hex(4)}"
