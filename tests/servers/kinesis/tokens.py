"""Iterators and page tokens: opaque to clients, and all that the server knows of them.

A token carries its own state, so that the server keeps nothing per reader.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tests.servers.kinesis.refusal import RefusalError, invalid

LIFETIME_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterator:
    """Where the next GetRecords begins; ``empty_pages`` come before it finds anything."""

    stream: str
    birth: int
    shard: int
    index: int
    issued_ms: int
    series: int
    empty_pages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageToken:
    """Where the next page of a listing begins; it remembers the filter of the first page."""

    stream: str
    birth: int
    after: str
    issued_ms: int
    series: int
    filter_type: str = ""
    filter_shard: str = ""
    filter_ms: int = 0


def encode(token: Iterator | PageToken) -> str:
    """Answer the text of a token."""
    body = json.dumps(asdict(token), separators=(",", ":")).encode()
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def decode_iterator(text: str) -> Iterator:
    """Answer the iterator of a text that ``encode`` made."""
    try:
        return Iterator(**_decoded(text))
    except (ValueError, TypeError) as error:
        raise invalid("Invalid ShardIterator.") from error


def decode_page_token(text: str) -> PageToken:
    """Answer the page token of a text that ``encode`` made."""
    try:
        return PageToken(**_decoded(text))
    except (ValueError, TypeError) as error:
        raise invalid("Invalid NextToken.") from error


def require_young_iterator(token: Iterator, *, now_ms: int, series: int) -> None:
    """Refuse an iterator that is too old, or of a series that was ended."""
    age_ms = now_ms - token.issued_ms
    if age_ms > LIFETIME_MS or token.series < series:
        raise RefusalError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created {age_ms} ms ago, and iterators "
            f"live {LIFETIME_MS} ms.",
        )


def require_young_page_token(token: PageToken, *, now_ms: int, series: int) -> None:
    """Refuse a page token that is too old, or of a series that was ended."""
    if now_ms - token.issued_ms > LIFETIME_MS or token.series < series:
        raise RefusalError("ExpiredNextTokenException", "The specified NextToken expired.")


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
