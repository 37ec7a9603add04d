"""Find the records of JSON files: lines, elements of arrays, or parts of either."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase
from typing import Any

from penstock.sources.formats.json_arrays import Element, read_elements
from penstock.sources.formats.json_decode import BadRecordError, decode_document
from penstock.sources.formats.json_paths import JsonPath, NoSuchPartError
from penstock.sources.formats.json_texts import json_text
from penstock.sources.formats.lines import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    LineLayout,
    Lines,
    read_lines,
)

GROUP_RECORDS_MAX = 1 << 16
NOT_DECODED = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSource:
    """Where a record comes from: its text, or its value inside of a document."""

    offset: int
    text: bytes
    value: object = NOT_DECODED
    # Why there is no record.
    error: str = ""
    line: bool = False


def line_groups(
    stream: BufferedIOBase, *, start: int, end: int | None, layout: LineLayout
) -> Iterator[list[JsonSource]]:
    """Read the lines that begin in a range of a file, some at a time."""
    for lines in read_lines(stream, start=start, end=end, layout=layout):
        yield [_long_line(lines, layout)] if lines.too_long else _line_sources(lines)


def _long_line(lines: Lines, layout: LineLayout) -> JsonSource:
    limit, found = layout.line_bytes_max, lines.size_bytes
    error = f"a line may have {limit} bytes at most, found {found}"
    return JsonSource(offset=lines.offset, text=bytes(lines.data), error=error)


def _line_sources(lines: Lines) -> list[JsonSource]:
    data, offset = bytes(lines.data), lines.offset
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        data, offset = data[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
    texts = data.split(b"\n")
    if not texts[-1]:
        texts.pop()
    sources = []
    for text in texts:
        sources.append(JsonSource(offset=offset, text=text, line=True))
        offset += len(text) + 1
    return sources


def element_groups(stream: BufferedIOBase, *, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Read the elements of all arrays of a file, some at a time."""
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


def _element_sources(element: Element, root: JsonPath) -> Iterator[JsonSource]:
    """Give the record of an element, or the records of the array that the root leads to."""
    whole = JsonSource(offset=element.offset, text=element.text)
    if not root.steps:
        yield whole
        return
    try:
        part = rooted(decode_document(element.text), root)
    except BadRecordError as error:
        yield replace(whole, error=str(error))
        return
    if not isinstance(part, list):
        yield replace(whole, value=part)
        return
    for value in part:
        yield _part_source(whole, value)


def _part_source(whole: JsonSource, value: object) -> JsonSource:
    try:
        return replace(whole, text=json_text(value).encode(), value=value)
    except BadRecordError as error:
        return replace(whole, text=b"", error=str(error))


def rooted(document: object, root: JsonPath) -> Any:  # noqa: ANN401 - Any JSON value.
    """Give the part of a document that the root leads to."""
    try:
        return root.part_of(document)
    except NoSuchPartError as error:
        raise BadRecordError(f"json_root {root.text} leads nowhere") from error
