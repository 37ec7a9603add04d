"""URIs of objects: a scheme, a bucket, a path.

The path is literal: nothing is percent-decoded, and ``?`` and ``#`` have no special meaning.
Users type patterns with ``[``, ``{`` and ``?``, and a file may have the name ``100%25.json``.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import UserError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_EXAMPLE = (
    "Use for example file:///data/in/*.json, with three slashes and an absolute path, or "
    "s3://bucket/in/*.json."
)


class Scheme(StrEnum):
    """Kind of store."""

    FILE = "file"
    S3 = "s3"
    GS = "gs"
    AZ = "az"


# With Hadoop's names for S3.
_SCHEME_BY_NAME = {str(scheme): scheme for scheme in Scheme} | {
    "s3a": Scheme.S3,
    "s3n": Scheme.S3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uri:
    """A parsed URI; keys of files are absolute paths, keys of objects have no first slash."""

    scheme: Scheme
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}{'/' if self.bucket else ''}{self.key}"


def has_scheme(text: str) -> bool:
    """Return whether a text starts with a scheme, like a URI."""
    return _SCHEME.match(text) is not None


def parse_uri(uri: str) -> Uri:
    """Parse a URI; raise UserError if no store can open it."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        raise UserError(
            f'uri "{uri}" must start with file://, s3://, gs:// or az://', hint=_EXAMPLE
        )
    kind = _SCHEME_BY_NAME.get(scheme[1].lower())
    if kind is None:
        allowed = ", ".join(f"{known}://" for known in Scheme)
        raise UserError(
            f'uri "{uri}" must start with one of {allowed}, not {scheme[1].lower()}://',
            hint=_EXAMPLE,
        )
    bucket, slash, path = uri[scheme.end() :].partition("/")
    if kind is Scheme.FILE:
        if bucket or not slash:
            raise UserError(
                f'uri "{uri}" must have an absolute path after file://',
                detail="The part before the third slash is the host, which must be empty.",
                hint=_EXAMPLE,
            )
        return Uri(scheme=kind, bucket="", key=_plain_path(f"/{path}", parts=path))
    if "@" in bucket:
        raise UserError(
            f"uri must have a bucket after {kind}://, without keys before the bucket",
            hint='Set "s3.access_key" and "s3.secret_key", preferably from a secret.',
        )
    if not _BUCKET.fullmatch(bucket):
        raise UserError(
            f'uri "{uri}" must have a bucket after {kind}://, not "{bucket}"',
            detail="A bucket name has 3 to 63 lower-case letters, digits, dots and hyphens.",
            hint=_EXAMPLE,
        )
    return Uri(scheme=kind, bucket=bucket, key=_plain_path(path, parts=path))


def _plain_path(path: str, *, parts: str) -> str:
    """Return the path; raise UserError if another path can name the same file."""
    if parts and {"", ".", ".."} & set(parts.removesuffix("/").split("/")):
        raise UserError(
            f'path "{path}" must not contain an empty part, "." or ".."',
            detail="A file is identified by its path, so a file must not have two paths.",
            hint=_EXAMPLE,
        )
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path):
        shown = path.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        raise UserError(f'path "{shown}" must be Unicode text without NUL')
    return path
