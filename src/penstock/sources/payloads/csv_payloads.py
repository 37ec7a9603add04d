"""Read records of CSV lines, many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO

from penstock.model.files import MissingColumns
from penstock.sources.formats.csv_fields import Enclosing, enclosing
from penstock.sources.formats.csv_layout import CsvLayout
from penstock.sources.formats.csv_rows import read_csv
from penstock.sources.payloads.decoded import Decoded, ReadTexts, Wanted, decoded_blocks
from penstock.sources.payloads.joining import join_lines


def csv_reader(layout: CsvLayout, wanted: Wanted) -> ReadTexts:
    """Give what reads texts of CSV lines."""
    enclosed = enclosing(layout)

    def read_run(texts: Sequence[bytes]) -> Iterator[Decoded]:
        lines = join_lines(texts)
        blocks = read_csv(
            BytesIO(lines.data),
            columns=wanted.columns,
            wanted=wanted.names,
            layout=layout,
            start=0,
            end=None,
            missing=MissingColumns.NULL,
            rescue=wanted.rescue,
            lines=lines.layout,
        )
        return decoded_blocks(blocks, records_of=lines.records_of)

    if enclosed is None:
        return read_run

    def read(texts: Sequence[bytes]) -> Iterator[Decoded]:
        for first, behind in _runs(texts, enclosed):
            for part in read_run(texts[first:behind]):
                yield _moved(part, by=first)

    return read


def _runs(texts: Sequence[bytes], enclosed: Enclosing) -> Iterator[tuple[int, int]]:
    """Set apart every text that leaves a field open, which would go on in the next one."""
    first = 0
    for at, text in enumerate(texts):
        if enclosed.enclose in text and _left_open(text, enclosed):
            if first < at:
                yield first, at
            yield at, at + 1
            first = at + 1
    if first < len(texts):
        yield first, len(texts)


def _left_open(text: bytes, enclosed: Enclosing) -> bool:
    opened = False
    for line in text.split(b"\n"):
        opened = enclosed.open_behind(line, opened=opened)
    return opened


def _moved(part: Decoded, *, by: int) -> Decoded:
    rows = part.record_of_row
    return replace(
        part,
        record_of_row=range(rows.start + by, rows.stop + by)
        if isinstance(rows, range)
        else rows + by,
        bad=tuple(replace(bad, record=bad.record + by) for bad in part.bad),
    )
