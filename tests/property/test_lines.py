"""Blocks of lines contain every byte of a file once, for all ranges."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.formats.lines import LineLayout, Lines, count_lines_before, read_lines

# No ending overlaps itself: csv_layout refuses such endings.
endings = st.sampled_from([b"\n", b"\r\n", b"|#", b"#|#x", b"\x01"])
alphabet = b"ab|#x\r\n\x01"
contents = st.lists(st.sampled_from(list(alphabet)), max_size=120).map(bytes)


def read(
    content: bytes, *, start: int, end: int | None, layout: LineLayout
) -> list[tuple[Lines, bytes]]:
    stream = io.BytesIO(content)
    return [
        (lines, bytes(lines.data))
        for lines in read_lines(stream, start=start, end=end, layout=layout)
    ]


@settings(deadline=None, max_examples=400)
@given(
    content=contents,
    ending=endings,
    split_points=st.sets(st.integers(1, 130), max_size=5),
    block_bytes=st.integers(1, 40),
    line_bytes_max=st.integers(1, 60),
)
def test_ranges_contain_every_byte_once_and_end_between_lines(
    content: bytes, ending: bytes, split_points: set[int], block_bytes: int, line_bytes_max: int
) -> None:
    layout = LineLayout(ending=ending, block_bytes=block_bytes, line_bytes_max=line_bytes_max)
    edges = [0, *sorted(split_points)]

    parts = [
        read(content, start=start, end=end, layout=layout)
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]

    at = 0
    for lines, data in (block for part in parts for block in part):
        assert lines.offset == at
        whole = content[at : at + lines.size_bytes]
        at += lines.size_bytes
        assert at == len(content) or whole.endswith(ending)
        assert whole.startswith(data)
        longest = max(len(line) for line in whole.split(ending))
        assert lines.too_long == (longest > line_bytes_max and data != whole) or at == len(
            content
        )
        assert data == whole or lines.too_long
    assert at == len(content)
    for (start, end), part in zip(
        zip(edges, [*edges[1:], None], strict=True), parts, strict=True
    ):
        assert all(lines.offset >= start for lines, _ in part)
        assert all(end is None or lines.offset < end for lines, _ in part)


@settings(deadline=None, max_examples=200)
@given(content=contents, ending=endings, offset=st.integers(0, 130))
def test_lines_before_an_offset_equal_the_line_endings_before_it(
    content: bytes, ending: bytes, offset: int
) -> None:
    counted = count_lines_before(io.BytesIO(content), offset, ending=ending)

    assert counted == content[:offset].count(ending)
