"""The footer of a Parquet file contains the offsets of the row groups."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sources.formats.parquet_footer import BrokenFooterError, RowGroup, read_row_groups
from tests.error_values import assert_names


def parquet(*, rows: int, row_group_rows: int, dictionary: bool) -> io.BytesIO:
    sink = io.BytesIO()
    table = pa.table({f"column {n}": pa.array(range(rows)) for n in range(20)})
    pq.write_table(table, sink, row_group_size=row_group_rows, use_dictionary=dictionary)
    return sink


def footed(footer: bytes) -> io.BytesIO:
    return io.BytesIO(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("dictionary", [True, False])
def test_row_groups_equal_those_of_arrow(*, dictionary: bool) -> None:
    stream = parquet(rows=95, row_group_rows=10, dictionary=dictionary)
    metadata = pq.read_metadata(stream)
    groups = [metadata.row_group(at) for at in range(10)]
    first = [group.column(0) for group in groups]

    found = read_row_groups(stream)

    assert found == tuple(
        RowGroup(
            first_byte=chunk.dictionary_page_offset or chunk.data_page_offset,
            rows=group.num_rows,
        )
        for group, chunk in zip(groups, first, strict=True)
    )


def test_a_footer_without_row_groups_has_none() -> None:
    assert read_row_groups(footed(b"\x00")) == ()


@pytest.mark.parametrize(
    ("footer", "named"),
    [
        (b"", ("footer ends",)),
        (b"\x15", ("footer ends",)),
        (b"\x18\x7f", ("footer ends",)),
        (b"\x15" + b"\xff" * 11, ("10",)),
        (b"\x1e", ("14",)),
        (b"\x1c" * 200, ("64",)),
        (b"\x49\x15", ("5",)),
        (b"\x49\xfc\xff\xff\xff\xff\x0f", ("footer ends",)),
    ],
)
def test_a_broken_footer_is_detected(footer: bytes, named: tuple[str, ...]) -> None:
    with pytest.raises(BrokenFooterError) as caught:
        read_row_groups(footed(footer))

    assert_names(str(caught.value), *named)


def test_fields_of_every_kind_are_skipped() -> None:
    footer = (
        b"\x11\x12\x13\x01\x14\x02\x17" + bytes(8) + b"\x18\x01x\x19\x21\x01\x02"
        b"\x1a\x15\x04\x1b\x01\x58\x04\x01y\x1b\x00\x1c\x11\x00\x1d" + bytes(16) + b"\x00"
    )

    assert read_row_groups(footed(footer)) == ()
