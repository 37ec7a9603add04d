"""Join records to lines of one buffer, and find the record of a line again.

Invariant: a record begins on a line of its own, and is read as it would be alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.sources.formats.json_decode import BadRecordError, decode_document
from penstock.sources.formats.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LineLayout
from penstock.sources.payloads.decoded import Numbers

_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLines:
    """The lines of some records."""

    data: bytes
    # The line that each record begins with; None where each of them is one line.
    first_lines: Numbers | None = None

    @property
    def layout(self) -> LineLayout:
        """How to read the lines: all at once, unless a record is very long."""
        return LineLayout(block_bytes=min(len(self.data), 2 * BLOCK_BYTES))

    @property
    def records_of(self) -> Callable[[Numbers], Numbers] | None:
        """What tells the records of lines; None where record and line are the same."""
        first_lines = self.first_lines
        if first_lines is None:
            return None
        return lambda lines: np.searchsorted(first_lines, lines, side="right") - 1


def join_lines(
    texts: Sequence[bytes], *, folded: Callable[[bytes], bytes] | None = None
) -> JoinedLines:
    """Join records, every one with a line end; ``folded`` may make one line of several."""
    data = _joined(texts)
    # Counted so, because counting in bytes takes a step for every one of them.
    if np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE[0]) == len(texts):
        return JoinedLines(data=data)
    texts = [text.removesuffix(_NEWLINE) for text in texts]
    if folded is not None:
        texts = [folded(text) if _NEWLINE in text else text for text in texts]
    counts = np.fromiter((text.count(_NEWLINE) + 1 for text in texts), np.int64, len(texts))
    return JoinedLines(data=_joined(texts), first_lines=np.cumsum(counts) - counts)


def fold_document(text: bytes) -> bytes:
    """Write a JSON document on one line; leave what is none, such as lines of documents."""
    try:
        decode_document(text)
    except BadRecordError:
        return text
    # Inside of strings, JSON has neither.
    return text.replace(b"\r", b" ").replace(_NEWLINE, b" ").strip(b" ")


def _joined(texts: Sequence[bytes]) -> bytes:
    data = _NEWLINE.join([*texts, b""])
    # Readers take a mark from the beginning of a file, but this one belongs to a record.
    return BYTE_ORDER_MARK + data if data.startswith(BYTE_ORDER_MARK) else data
