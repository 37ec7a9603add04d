"""Infer columns from the beginnings of CSV files.

A text stays a text, whatever it looks like, so every column is a STRING.
"""

import io
from collections.abc import Callable, Iterable
from io import BufferedIOBase

from penstock.errors import Code, UserError
from penstock.model.schema import Column, Primitive
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.csv_columns import generated_name
from penstock.sources.formats.csv_fields import BrokenRecordError, Fields, field_cutter
from penstock.sources.formats.csv_layout import CsvLayout
from penstock.sources.formats.csv_preamble import read_preamble
from penstock.sources.formats.csv_records import RecordCutter
from penstock.sources.formats.lines import LineLayout, read_head, read_lines


def infer_csv_columns(
    streams: Iterable[BufferedIOBase],
    layout: CsvLayout,
    *,
    lines_max: int = 1000,
    bytes_max: int = 4 << 20,
) -> tuple[Column, ...]:
    """Give the columns that hold the records at the beginning of every file."""
    name_by_folded: dict[str, str] = {}
    fields_max = 0
    for stream in streams:
        head = _whole_lines(stream, bytes_max=bytes_max, ending=layout.ending)
        if layout.header_lines:
            for name in _header_names(head, layout):
                name_by_folded.setdefault(name.lower(), name)
        else:
            fields_max = max(fields_max, _most_fields(head, layout, lines_max=lines_max))
    names = [*name_by_folded.values(), *(generated_name(at) for at in range(fields_max))]
    if not names:
        raise _nothing_found(layout, lines_max=lines_max)
    return tuple(Column(name=name, type=Primitive.STRING) for name in names)


def _whole_lines(stream: BufferedIOBase, *, bytes_max: int, ending: bytes) -> bytes:
    head = read_head(stream, bytes_max)
    # The last line may go on behind what was read.
    return head[: head.rfind(ending) + len(ending)] if len(head) == bytes_max else head


def _header_names(head: bytes, layout: CsvLayout) -> tuple[str, ...]:
    preamble = read_preamble(io.BytesIO(head), layout=layout, line_bytes_max=len(head))
    names = preamble.names or () if preamble else ()
    first_by_folded: dict[str, int] = {}
    for field, name in enumerate(names):
        first = first_by_folded.setdefault(name.lower(), field)
        if first != field:
            raise UnreadableFileError(
                f'column "{name}" is named by fields {first + 1} and {field + 1} of the header',
                code=Code.TYPE_ERR,
                detail="Upper and lower case do not matter in the names of columns.",
                hint="Give every column of the file a name of its own, or skip the header with"
                ' the options "format" and "skip_lines", and name the columns with "schema".',
            )
    return names


def _most_fields(head: bytes, layout: CsvLayout, *, lines_max: int) -> int:
    """Give the number of fields in the widest of the first records; bad ones do not count."""
    lines = LineLayout(ending=layout.ending, line_bytes_max=len(head))
    stream = io.BytesIO(head)
    preamble = read_preamble(stream, layout=layout, line_bytes_max=lines.line_bytes_max)
    if preamble is None:
        return 0
    cutter = RecordCutter(layout, line_bytes_max=lines.line_bytes_max)
    texts: list[bytes] = []
    for block in read_lines(stream, start=preamble.size_bytes, end=None, layout=lines):
        texts += cutter.cut(block).texts
    cut = field_cutter(layout)
    return max((_field_count(text, cut) for text in texts[:lines_max]), default=0)


def _field_count(text: bytes, cut: Callable[[bytes], Fields]) -> int:
    try:
        return len(cut(text)) if text else 0
    except BrokenRecordError:
        # A bad record is reported when it is loaded; here it only teaches nothing.
        return 0


def _nothing_found(layout: CsvLayout, *, lines_max: int) -> UserError:
    searched = "header" if layout.header_lines else "record"
    return UserError(
        f"no {searched} was found to infer the columns from",
        code=Code.TYPE_ERR,
        detail=f"The first {lines_max} records of each file were tried.",
        hint='Name the columns with the option "schema", such as "id BIGINT, note STRING".',
    )
