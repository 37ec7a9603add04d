"""What an operation answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The fields of an answer; records are already encoded, each by itself."""

    fields: Mapping[str, object] = field(default_factory=dict)
    records: Sequence[bytes] | None = None
    size_bytes: int = 0


def encoded(reply: Reply) -> bytes:
    """Answer the body; an operation without an answer has none."""
    if reply.records is None:
        return json.dumps(reply.fields).encode() if reply.fields else b""
    rest = json.dumps(reply.fields).encode()
    return b'{"Records":[%b],%b' % (b",".join(reply.records), rest[1:])
