"""Find the records of JSON files: lines, elements of arrays, or parts of either.

The scanner checks only brackets and strings. Elements are validated when they are decoded, so
a malformed element does not affect its neighbours.
"""

import re
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, NamedTuple

from penstock.arrow.casts import shown
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.json_values import (
    BadRecordError,
    JsonPath,
    NoSuchPartError,
    decode_document,
    json_text,
)
from penstock.sources.formats.lines import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    LINE_BYTES_MAX,
    LineLayout,
    Lines,
)

_CHUNK_BYTES = 1 << 16
_FOUND_BYTES = 40
_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Both patterns skip whole strings. Group 1 is the next bracket (or comma), or empty at the end.
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[\]{}]?)", re.DOTALL)
_TO_BRACKET_OR_COMMA = re.compile(
    rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+([\[\]{},]?)", re.DOTALL
)
_CLOSING = {b"[": b"]", b"{": b"}"}


def read_elements(
    stream: BufferedIOBase, *, objects: bool, element_bytes_max: int = LINE_BYTES_MAX
) -> Iterator[bytes]:
    """Yield the elements of all arrays; with ``objects``, also objects outside arrays."""
    return _Scanner(stream, element_bytes_max=element_bytes_max).elements(objects=objects)


class _Scanner:
    """Scans a file; holds the bytes from the start of the current element."""

    def __init__(self, stream: BufferedIOBase, *, element_bytes_max: int) -> None:
        self._stream = stream
        self._element_bytes_max = element_bytes_max
        self._held = bytearray()
        self._offset = 0

    def elements(self, *, objects: bool) -> Iterator[bytes]:
        self._stream.seek(0)
        while len(self._held) < len(BYTE_ORDER_MARK) and self._read_more():
            continue
        if self._held.startswith(BYTE_ORDER_MARK):
            self._drop(len(BYTE_ORDER_MARK))
        while self._skip_blank():
            if self._held.startswith(b"["):
                yield from self._array()
            elif objects and self._held.startswith(b"{"):
                yield self._take(self._end_of_value())
            else:
                found = bytes(self._held[:_FOUND_BYTES]).decode(errors="replace")
                expected = "an array or an object" if objects else "an array"
                raise _unreadable(
                    f"expected {expected} at byte {self._offset}, found {shown(found)}"
                )

    def _array(self) -> Iterator[bytes]:
        start = self._offset
        self._drop(1)
        first, closing = True, b""
        while closing != b"]":
            end, closing = self._end_of_element(start)
            element = self._take(end)
            self._drop(1)
            if element or not first or closing != b"]":
                yield element
            first = False

    def _end_of_element(self, start: int) -> tuple[int, bytes]:
        """Return the offset and the character of the comma or bracket after the element."""
        at = 0
        while True:
            at, found = self._next(_TO_BRACKET_OR_COMMA, at)
            if not found:
                raise _unreadable(f"the array at byte {start} is not closed")
            if found in (b",", b"]"):
                return at, found
            if found == b"}":
                raise self._mismatch(at, expected=b"]", found=found)
            at = self._end_of_value(at)

    def _end_of_value(self, at: int = 0) -> int:
        """Return the end of the array or object that starts at the offset."""
        start = self._offset + at
        closings: list[bytes] = []
        while True:
            at, found = self._next(_TO_BRACKET, at)
            if not found:
                raise _unreadable(f"the value at byte {start} is not closed")
            at += 1
            if found in _CLOSING:
                closings.append(_CLOSING[found])
            elif found != closings[-1]:
                raise self._mismatch(at - 1, expected=closings[-1], found=found)
            else:
                closings.pop()
                if not closings:
                    return at

    def _next(self, pattern: re.Pattern[bytes], at: int) -> tuple[int, bytes]:
        """Return the next bracket outside strings, and its offset; empty at the file's end."""
        while True:
            match = pattern.match(self._held, at)
            # The pattern always matches, possibly an empty text.
            at = match.end() if match else at
            if match and match[1]:
                return at - 1, match[1]
            if not self._read_more():
                return at, b""

    def _read_more(self) -> bool:
        if len(self._held) > self._element_bytes_max:
            raise _unreadable(
                f"the element at byte {self._offset} has more than"
                f" {self._element_bytes_max} bytes"
            )
        # Double the held bytes each time: a long string is scanned again from its start.
        chunk = self._stream.read(max(_CHUNK_BYTES, len(self._held)))
        self._held += chunk
        return bool(chunk)

    def _skip_blank(self) -> bool:
        """Skip blanks; return whether anything follows."""
        while True:
            match = _BLANK.match(self._held)
            self._drop(match.end() if match else 0)
            if self._held:
                return True
            if not self._read_more():
                return False

    def _take(self, count: int) -> bytes:
        text = bytes(self._held[:count])
        self._drop(count)
        return text.strip(b" \t\r\n")

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._offset += count

    def _mismatch(self, at: int, *, expected: bytes, found: bytes) -> UnreadableFileError:
        place = f"at byte {self._offset + at}"
        return _unreadable(f'expected "{expected.decode()}" {place}, found "{found.decode()}"')


def _unreadable(message: str) -> UnreadableFileError:
    return UnreadableFileError(
        message, hint='Check the option "strip_outer_array", or remove the file.'
    )


GROUP_RECORDS_MAX = 1 << 16
NOT_DECODED = object()


class JsonSource(NamedTuple):
    """A record to decode: its text, or its value inside a document.

    A tuple, because tuples are faster to create than data classes.
    """

    text: bytes
    value: object = NOT_DECODED
    # The reason if the record cannot be read; else empty.
    error: str = ""
    line: bool = False


def line_sources(lines: Lines, layout: LineLayout) -> list[JsonSource]:
    """Return the lines of a block, or the error of a line that is too long."""
    if lines.too_long:
        limit, found = layout.line_bytes_max, lines.size_bytes
        error = f"a line must have at most {limit} bytes, found {found}"
        return [JsonSource(text=bytes(lines.data), error=error)]
    texts = bytes(lines.content).split(b"\n")
    if not texts[-1]:
        texts.pop()
    return [JsonSource(text=text, line=True) for text in texts]


def element_groups(stream: BufferedIOBase, *, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Yield the elements of all arrays of a file in groups."""
    group: list[JsonSource] = []
    size_bytes = 0
    for element in read_elements(stream, objects=bool(root.steps)):
        for source in _element_sources(element, root):
            group.append(source)
            size_bytes += len(source.text)
            if size_bytes >= BLOCK_BYTES or len(group) >= GROUP_RECORDS_MAX:
                yield group
                group, size_bytes = [], 0
    if group:
        yield group


def _element_sources(element: bytes, root: JsonPath) -> Iterator[JsonSource]:
    """Yield the record of an element, or the records of the array at the root."""
    whole = JsonSource(text=element)
    if not root.steps:
        yield whole
        return
    try:
        part = part_at_root(decode_document(element), root)
    except BadRecordError as error:
        yield whole._replace(error=str(error))
        return
    if not isinstance(part, list):
        yield whole._replace(value=part)
        return
    for value in part:
        try:
            yield JsonSource(text=json_text(value).encode(), value=value)
        except BadRecordError as error:
            yield JsonSource(text=b"", error=str(error))


def part_at_root(document: object, root: JsonPath) -> Any:  # noqa: ANN401 - Any JSON value.
    """Return the part of a document at the root; raise ``BadRecordError`` if it is missing."""
    try:
        return root.part_of(document)
    except NoSuchPartError as error:
        raise BadRecordError(f"json_root {root.text} does not exist in the record") from error
