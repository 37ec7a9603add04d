"""Valid and broken aggregated records for tests."""

import hashlib
from collections.abc import Sequence

from penstock.sources.kinesis.records import MAGIC, SubRecord


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def with_digest(message: bytes) -> bytes:
    """Add the magic number before a message and the digest after it."""
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    return MAGIC + message + digest


def packed(*records: SubRecord) -> bytes:
    """Return an aggregate of records."""
    keys = list(dict.fromkeys(record.partition_key for record in records))
    explicit = [record.explicit_hash_key for record in records]
    hash_keys = list(dict.fromkeys(key for key in explicit if key is not None))
    tables = [
        *(bytes_field(1, key.encode()) for key in keys),
        *(bytes_field(2, key.encode()) for key in hash_keys),
    ]
    return with_digest(b"".join([*tables, *(_record(r, keys, hash_keys) for r in records)]))


def _record(record: SubRecord, keys: Sequence[str], hash_keys: Sequence[str]) -> bytes:
    fields = [number_field(1, keys.index(record.partition_key))]
    if record.explicit_hash_key is not None:
        fields.append(number_field(2, hash_keys.index(record.explicit_hash_key)))
    fields.append(bytes_field(3, record.data))
    return bytes_field(3, b"".join(fields))
