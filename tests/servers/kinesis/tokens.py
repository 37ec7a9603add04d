"""Iterators and page tokens, which are opaque to clients.

A token contains its own state, so that the server stores nothing per reader.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tests.servers.kinesis.errors import ServiceError, invalid_argument

LIFETIME_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterator:
    """Start of the next GetRecords; ``empty_pages`` are returned before any records."""

    stream: str
    creation_second: int
    shard: int
    index: int
    issued_ms: int
    series: int
    empty_pages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageToken:
    """Start of the next page of a listing, with the filter of the first page."""

    stream: str
    creation_second: int
    after: str
    issued_ms: int
    series: int
    filter_type: str = ""
    filter_shard: str = ""
    filter_ms: int = 0


def encode(token: Iterator | PageToken) -> str:
    """Convert a token to text."""
    body = json.dumps(asdict(token), separators=(",", ":")).encode()
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def decode_iterator(text: str) -> Iterator:
    """Parse an iterator; raise ServiceError for any other text."""
    try:
        return Iterator(**_decoded(text))
    except (ValueError, TypeError) as error:
        raise invalid_argument("Invalid ShardIterator.") from error


def decode_page_token(text: str) -> PageToken:
    """Parse a page token; raise ServiceError for any other text."""
    try:
        return PageToken(**_decoded(text))
    except (ValueError, TypeError) as error:
        raise invalid_argument("Invalid NextToken.") from error


def require_unexpired_iterator(token: Iterator, *, now_ms: int, series: int) -> None:
    """Raise ServiceError if an iterator is too old or its series was ended."""
    age_ms = now_ms - token.issued_ms
    if age_ms > LIFETIME_MS or token.series < series:
        raise ServiceError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created {age_ms} ms ago, and iterators "
            f"live {LIFETIME_MS} ms.",
        )


def require_unexpired_page_token(token: PageToken, *, now_ms: int, series: int) -> None:
    """Raise ServiceError if a page token is too old or its series was ended."""
    if now_ms - token.issued_ms > LIFETIME_MS or token.series < series:
        raise ServiceError("ExpiredNextTokenException", "The specified NextToken expired.")


def _decoded(text: str) -> Mapping[str, Any]:
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error
    check, body = packed[:4], packed[4:]
    if zlib.crc32(body).to_bytes(4, "big") != check:
        raise ValueError(text)
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise TypeError(text)
    return fields
