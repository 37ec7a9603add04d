"""Rows as JSON, in the compact form and in the printed form."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from penstock.arrow.json_text import json_objects
from penstock.arrow.types import AnyArray

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
ROW: dict[str, AnyArray] = {
    "id": pa.array([None], pa.int64()),
    "price": pa.array([Decimal("2.50")]),
    "ratio": pa.array([float("nan")]),
    "octets": pa.array([b"\xff"]),
    "at": pa.array([NOON], pa.timestamp("us", "UTC")),
    "place": pa.array([{"city": "Zürich", "zip": None}]),
    "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
}


def test_the_compact_form_omits_nulls_and_keeps_decimals_as_numbers() -> None:
    assert json_objects(pa.RecordBatch.from_pydict(ROW)) == [
        '{"price": 2.50, "ratio": "NaN", "octets": "/w==", "at": "2026-11-15 12:00:00",'
        ' "place": {"city": "Zürich"}, "counts": {"a": 1}}'
    ]


def test_the_printed_form_has_every_member() -> None:
    assert json_objects(pa.RecordBatch.from_pydict(ROW), printed=True) == [
        '{"id": null, "price": "2.50", "ratio": "NaN", "octets": "0xff",'
        ' "at": "2026-11-15 12:00:00", "place": {"city": "Zürich", "zip": null},'
        ' "counts": {"a": 1}}'
    ]


def test_text_that_is_not_utf8_is_written_with_replacement_characters() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )

    (written,) = json_objects(pa.RecordBatch.from_arrays([text], names=["note"]), printed=True)

    assert json.loads(written or "") == {"note": "a\ufffd"}


def test_a_row_without_members_is_none_or_an_empty_object() -> None:
    rows = pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64())})

    assert json_objects(rows) == [None]
    assert json_objects(rows.select([]), printed=True) == ["{}"]
