"""Result of an operation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Fields of a response; each record is already encoded as JSON."""

    fields: Mapping[str, object] = field(default_factory=dict)
    records: Sequence[bytes] | None = None
    size_bytes: int = 0


def encode_reply(reply: Reply) -> bytes:
    """Return the body of a response; empty if the operation has no result."""
    if reply.records is None:
        return json.dumps(reply.fields).encode() if reply.fields else b""
    rest = json.dumps(reply.fields).encode()
    return b'{"Records":[%b],%b' % (b",".join(reply.records), rest[1:])
