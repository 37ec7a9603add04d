"""Take payloads some at a time, unpacked, without those that are blank or broken."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller

import numpy as np

from penstock.model.payload import PayloadCompression
from penstock.sources.formats.compression import TooMuchContentError, gunzipped
from penstock.sources.formats.lines import BYTE_ORDER_MARK
from penstock.sources.formats.snappy import BrokenStreamError, StreamEndsTooEarlyError
from penstock.sources.payloads.decoded import BadPayload, RecordNumbers

UNPACKED_BYTES_MAX = 1 << 26

# Arrow reads pieces below one MiB at once, and fresh memory costs more than reading.
_CHUNK_BYTES = (1 << 20) - 1
_CHUNK_RECORDS = 1 << 16
_GZIP_BEGIN = b"\x1f\x8b"

_marked = methodcaller("startswith", BYTE_ORDER_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What some records hold, and which ones they are; those that hold nothing to read."""

    texts: Sequence[bytes]
    records: RecordNumbers
    blank: int = 0
    bad: tuple[BadPayload, ...] = ()


def contents_of(
    payloads: Sequence[bytes], *, compression: PayloadCompression
) -> Iterator[Contents]:
    """Give what payloads hold, as much at once as is read at once; a longer one alone."""
    if compression is PayloadCompression.GZIP:
        return _unpacked_chunks(payloads)
    return _chunks(payloads)


def without_marks(contents: Contents) -> Contents:
    """Take away the byte order marks that some programs put before a text."""
    if not any(map(_marked, contents.texts)):
        return contents
    return Contents(
        texts=[text.removeprefix(BYTE_ORDER_MARK) for text in contents.texts],
        records=contents.records,
        bad=contents.bad,
    )


def without_blanks(contents: Contents, *, meaningless: Callable[[bytes], bool]) -> Contents:
    """Take away what is only white space, where that is said to be without meaning."""
    texts = contents.texts
    if all(texts) and not any(map(bytes.isspace, texts)):
        return contents
    kept = [
        at
        for at, text in enumerate(texts)
        if text and not (text.isspace() and meaningless(text))
    ]
    return Contents(
        texts=[texts[at] for at in kept],
        records=np.asarray(contents.records, np.int64)[kept],
        blank=contents.blank + len(texts) - len(kept),
        bad=contents.bad,
    )


def _chunks(payloads: Sequence[bytes]) -> Iterator[Contents]:
    # Each with its line end.
    ends = np.fromiter(map(len, payloads), np.int64, len(payloads)).cumsum()
    ends += np.arange(1, len(payloads) + 1)
    first = 0
    while first < len(payloads):
        before = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
        behind = min(max(fitting, first + 1), first + _CHUNK_RECORDS)
        yield Contents(texts=payloads[first:behind], records=range(first, behind))
        first = behind


def _unpacked_chunks(payloads: Sequence[bytes]) -> Iterator[Contents]:
    texts: list[bytes] = []
    records: list[int] = []
    bad: list[BadPayload] = []
    size_bytes = 0
    for record, payload in enumerate(payloads):
        try:
            text = _unpacked(payload)
        except BrokenStreamError as error:
            bad.append(BadPayload(record=record, error=str(error), raw=payload))
            continue
        size_bytes += len(text)
        if texts and (size_bytes > _CHUNK_BYTES or len(texts) == _CHUNK_RECORDS):
            yield _contents(texts, records, bad)
            texts, records, bad, size_bytes = [], [], [], len(text)
        texts.append(text)
        records.append(record)
    yield _contents(texts, records, bad)


def _contents(texts: list[bytes], records: list[int], bad: list[BadPayload]) -> Contents:
    return Contents(texts=texts, records=np.array(records, np.int64), bad=tuple(bad))


def _unpacked(payload: bytes) -> bytes:
    if not payload.startswith(_GZIP_BEGIN):
        raise BrokenStreamError("the record is not compressed with gzip")
    try:
        return gunzipped(payload, content_bytes_max=UNPACKED_BYTES_MAX)
    except StreamEndsTooEarlyError as error:
        raise BrokenStreamError("the record's gzip stream ends too early") from error
    except TooMuchContentError as error:
        raise BrokenStreamError(
            f"the record may unpack to {UNPACKED_BYTES_MAX} bytes at most, and has more"
        ) from error
    except BrokenStreamError as error:
        raise BrokenStreamError(f"the record's gzip stream is broken: {error}") from error
