"""Where a table lies: a location as people write it, and the place that it names.

The path after the scheme is taken literally, nothing is percent-decoded, as in the sources.
"""

import os
import re
import secrets

from penstock.errors import UserError
from penstock.storage.uris import Scheme, Uri, parse_uri

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_MAX = 100


def table_uri(location: str) -> Uri:
    """Answer the place that a location names: an absolute path, ``file:///…`` or a bucket."""
    scheme = _SCHEME.match(location)
    if "%" in location:
        # delta-rs would decode it and read another folder.
        raise UserError(f'location "{location}" must not have a percent sign in it')
    if scheme is None or scheme[1].lower() == Scheme.FILE:
        return Uri(scheme=Scheme.FILE, bucket="", key=_local(location))
    uri = parse_uri(location.rstrip("/"))
    if not uri.key:
        raise UserError(
            f'location "{location}" must name a folder in the bucket',
            hint=f"Write it like {uri.scheme}://{uri.bucket}/orders.",
        )
    return uri


def _local(location: str) -> str:
    path = os.path.normpath(location.removeprefix("file://"))
    if not path.startswith("/") or path == "/":
        raise UserError(
            f'location "{location}" must be the absolute path of a folder',
            hint="Write it like /data/orders, file:///data/orders or s3://bucket/orders.",
        )
    return path


def location_of(uri: Uri) -> str:
    """Answer a place as people and the table library name it."""
    return uri.key if uri.scheme is Scheme.FILE else str(uri)


def below(location: str, *names: str) -> str:
    """Answer the location of a folder inside of another."""
    return "/".join((location.rstrip("/"), *names))


def new_folder(warehouse: str, name: str) -> str:
    """Answer a folder that no other table has had: two tables of one name never share one."""
    safe = _UNSAFE.sub("_", name)[:_NAME_MAX]
    return below(warehouse, f"{safe}-{secrets.token_hex(4)}")
