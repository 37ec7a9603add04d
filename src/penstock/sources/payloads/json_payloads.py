"""Read records of JSON: lines of documents, or arrays, many at once."""

from collections import deque
from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np

from penstock.model.files import MissingColumns
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError
from penstock.sources.formats.json_arrays import read_elements
from penstock.sources.formats.json_documents import (
    JsonLayout,
    JsonReading,
    json_reading,
    read_sources,
)
from penstock.sources.formats.json_lines import read_json_lines
from penstock.sources.formats.json_paths import JsonPath
from penstock.sources.formats.json_sources import (
    GROUP_RECORDS_MAX,
    JsonSource,
    element_groups,
    line_groups,
)
from penstock.sources.payloads.decoded import (
    BadPayload,
    Decoded,
    ReadTexts,
    Wanted,
    decoded_blocks,
    without_rows,
)
from penstock.sources.payloads.joining import JoinedLines, fold_document, join_lines

# The elements of a longer text are not held all at once.
_LONG_BYTES = 1 << 20


def json_reader(layout: JsonLayout, wanted: Wanted) -> ReadTexts:
    """Give what reads texts of JSON; ``UserError`` if the layout does not fit the columns."""
    reading = json_reading(
        wanted.columns,
        wanted.names,
        layout=layout,
        missing=MissingColumns.NULL,
        rescue=wanted.rescue,
    )
    if layout.strip_outer_array:
        return lambda texts: _read_arrays(texts, reading)
    plain = layout.plain and not wanted.rescue

    def read(texts: Sequence[bytes]) -> Iterator[Decoded]:
        lines = join_lines(texts, folded=fold_document)
        blocks = _plain_blocks(lines, reading) if plain else _blocks(lines, reading)
        return decoded_blocks(blocks, records_of=lines.records_of)

    return read


def _plain_blocks(lines: JoinedLines, reading: JsonReading) -> Iterator[RecordBlock]:
    return read_json_lines(
        BytesIO(lines.data),
        schema=reading.shape.schema,
        start=0,
        end=None,
        layout=lines.layout,
    )


def _blocks(lines: JoinedLines, reading: JsonReading) -> Iterator[RecordBlock]:
    first_line = 0
    stream = BytesIO(lines.data)
    for group in line_groups(stream, start=0, end=None, layout=lines.layout):
        yield from read_sources(group, reading=reading, first_line=first_line)
        first_line += len(group)


def _read_arrays(texts: Sequence[bytes], reading: JsonReading) -> Iterator[Decoded]:
    elements: list[JsonSource] = []
    owners: list[int] = []
    bad: list[BadPayload] = []
    for number, text in enumerate(texts):
        try:
            for group in _groups(text, reading.layout.root):
                elements += group
                owners += [number] * len(group)
                if len(elements) >= GROUP_RECORDS_MAX:
                    yield from _decoded(elements, owners, reading)
                    elements, owners = [], []
        except UnreadableFileError as error:
            bad.append(BadPayload(record=number, error=error.message, raw=text))
    if elements:
        yield from _decoded(elements, owners, reading)
    if bad:
        yield without_rows(reading.shape.schema, bad=tuple(bad))


def _groups(text: bytes, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Give the elements of a text that is whole; else fail before the first of them."""
    if len(text) <= _LONG_BYTES:
        return iter(list(element_groups(BytesIO(text), root=root)))
    deque(read_elements(BytesIO(text), objects=bool(root.steps)), maxlen=0)
    return element_groups(BytesIO(text), root=root)


def _decoded(
    elements: list[JsonSource], owners: list[int], reading: JsonReading
) -> Iterator[Decoded]:
    record_of_element = np.array(owners, np.int64)
    blocks = read_sources(elements, reading=reading, first_line=0)
    return decoded_blocks(blocks, records_of=lambda lines: record_of_element[lines])
