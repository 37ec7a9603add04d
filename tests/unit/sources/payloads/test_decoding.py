"""The payloads of records become rows; a bad record does not affect other records."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Code, InvariantError, UserError
from penstock.model.formats import TEXT_COLUMNS, Payload, PayloadCompression, PayloadFormat
from penstock.model.schema import Column, Primitive
from penstock.sources.formats.blocks import RecordBlock
from penstock.sources.formats.payloads import Decoder
from tests.error_values import assert_names, raises

ID = Column(name="id", type=Primitive.BIGINT)
NOTE = Column(name="note", type=Primitive.STRING)
PAIR = (ID, NOTE)
CSV = Payload(format=PayloadFormat.CSV, column_separator=",")
ENCLOSED = replace(CSV, enclose='"')
JSON = Payload(format=PayloadFormat.JSON)
ARRAYS = replace(JSON, strip_outer_array=True)
TEXT = Payload(format=PayloadFormat.TEXT)
GZIP = replace(JSON, compress_type=PayloadCompression.GZIP)
MARK = b"\xef\xbb\xbf"


class Outcome:
    """The rows and the errors of some records."""

    def __init__(self, parts: list[RecordBlock]) -> None:
        self.parts = parts
        self.rows = [tuple(row.values()) for part in parts for row in part.batch.to_pylist()]
        self.records = [record for part in parts for record in part.record_of_row]
        self.bad = [(bad.record, bad.error) for part in parts for bad in part.bad]
        self.raw = [bad.raw for part in parts for bad in part.bad]
        self.blank = sum(part.blank for part in parts)
        self.lines = sum(part.lines for part in parts)


def decode(
    payload: Payload,
    *payloads: bytes,
    columns: tuple[Column, ...] = PAIR,
    needed: list[str] | None = None,
    **metadata: Any,
) -> Outcome:
    names = [column.name for column in columns] if needed is None else needed
    decoder = Decoder(payload, columns=columns, needed=names)
    outcome = Outcome(list(decoder.decode(payloads, metadata)))
    assert outcome.lines == len(outcome.rows) + outcome.blank + len(outcome.bad)
    assert len(outcome.records) == sum(part.batch.num_rows for part in outcome.parts)
    return outcome


def assert_bad(found: Sequence[tuple[int, str]], *expected: tuple[int | str, ...]) -> None:
    """Assert the numbers of bad records, and values in each error."""
    assert [record for record, _ in found] == [one[0] for one in expected]
    for (_, error), (_, *values) in zip(found, expected, strict=True):
        assert_names(error, *values)


def test_a_record_is_one_csv_line_without_its_end() -> None:
    found = decode(CSV, b"1,apple", b"2,pear")

    assert found.rows == [(1, "apple"), (2, "pear")]
    assert found.records == [0, 1]


def test_fields_are_separated_by_tabs_by_default() -> None:
    assert decode(Payload(format=PayloadFormat.CSV), b"1\tapple").rows == [(1, "apple")]


@pytest.mark.parametrize("text", [b"1,a\n", b"1,a\r\n", MARK + b"1,a"])
def test_a_final_line_end_and_a_byte_order_mark_are_not_part_of_a_record(text: bytes) -> None:
    found = decode(CSV, b"0,z", text, b"2,b")

    assert found.rows == [(0, "z"), (1, "a"), (2, "b")]
    assert found.lines == 3


def test_only_one_byte_order_mark_is_removed_from_every_record() -> None:
    marked = MARK + MARK + b'{"id": 1}'

    found = decode(JSON, marked, b'{"id": 2}', marked)

    assert found.rows == [(2, None)]
    assert [record for record, _ in found.bad] == [0, 2]


def test_t78_a_record_of_five_csv_lines_becomes_five_rows() -> None:
    found = decode(CSV, b"0,z", b"1,a\n2,b\n3,c\n4,d\n5,e", b"6,f")

    assert [row[0] for row in found.rows] == [0, 1, 2, 3, 4, 5, 6]
    assert found.records == [0, 1, 1, 1, 1, 1, 2]


def test_null_is_backslash_n_and_a_missing_field_is_null() -> None:
    assert decode(CSV, b"\\N,x", b"1", b"2,\\N").rows == [(None, "x"), (1, None), (2, None)]


def test_an_empty_field_is_an_empty_text_unless_set_to_null() -> None:
    assert decode(CSV, b"1,").rows == [(1, "")]
    assert decode(replace(CSV, empty_field_as_null=True), b"1,").rows == [(1, None)]


def test_double_quotes_around_a_field_are_removed_if_set() -> None:
    assert decode(CSV, b'1,"a"').rows == [(1, '"a"')]
    assert decode(replace(CSV, trim_double_quotes=True), b'1,"a"').rows == [(1, "a")]


def test_an_enclosed_field_can_contain_separators_and_line_ends() -> None:
    found = decode(ENCLOSED, b'1,"a,\nb"', b'2,"c""d"', b"3,e")

    assert found.rows == [(1, "a,\nb"), (2, 'c"d'), (3, "e")]
    assert found.records == [0, 1, 2]
    assert found.lines == 3


def test_an_escaped_character_does_not_close_a_field() -> None:
    assert decode(replace(ENCLOSED, escape="\\"), b'1,"a\\"b"').rows == [(1, 'a"b')]


def test_an_open_field_ends_with_its_record() -> None:
    found = decode(ENCLOSED, b'1,"a"', b'2,b\n3,"c', b'4,"d"', b'"', b"5,e")

    assert found.rows == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]
    assert found.records == [0, 1, 2, 4]
    assert_bad(found.bad, (1, "closed"), (3, "closed"))


def test_a_csv_value_that_does_not_fit_rejects_only_its_line() -> None:
    found = decode(CSV, b"1,a\nx,b\n3,c", b"4,d,more", b"5,\xff", b"6,e")

    assert found.rows == [(1, "a"), (3, "c"), (6, "e")]
    assert found.records == [0, 0, 3]
    assert_bad(
        found.bad,
        (0, '"id"', "BIGINT", '"x"'),
        (1, "2 fields", "3"),
        (2, '"note"', "byte 1", "UTF-8"),
    )
    assert found.raw == [b"x,b", b"4,d,more", b"5,\xff"]


def test_a_nul_in_a_csv_record_is_a_character() -> None:
    assert decode(CSV, b"1,a\0b", b"2,c").rows == [(1, "a\0b"), (2, "c")]


@pytest.mark.parametrize("payload", [CSV, JSON, ARRAYS, TEXT])
@pytest.mark.parametrize("space", [b" ", b"\n", b"\r\n", b" \n\t\n "])
def test_white_space_is_blank(payload: Payload, space: bytes) -> None:
    columns = TEXT_COLUMNS if payload is TEXT else PAIR

    found = decode(payload, space, columns=columns)

    assert (found.rows, found.bad, found.blank, found.lines) == ([], [], 1, 1)


def test_white_space_with_a_separator_is_a_row() -> None:
    assert decode(Payload(format=PayloadFormat.CSV), b"\t").rows == [(None, "")]


def test_a_blank_line_inside_of_a_record_is_counted() -> None:
    found = decode(JSON, b'{"id": 1}\n\n{"id": 2}')

    assert found.rows == [(1, None), (2, None)]
    assert (found.blank, found.lines) == (1, 3)


def test_a_record_is_one_json_object_and_absent_fields_are_null() -> None:
    found = decode(JSON, b'{"id": 1, "note": "a", "more": [1]}', b'{"id": 2}')

    assert found.rows == [(1, "a"), (2, None)]
    assert found.records == [0, 1]


def test_t78_a_record_of_several_json_lines_becomes_several_rows() -> None:
    found = decode(JSON, b'{"id": 1}', b'{"id": 2}\n{"id": 3}\n{"id": 4}\n', b'{"id": 5}')

    assert [row[0] for row in found.rows] == [1, 2, 3, 4, 5]
    assert found.records == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_an_object_over_several_lines_is_one_row(ending: str) -> None:
    pretty = json.dumps({"id": 1, "note": "a\nb"}, indent=2).replace("\n", ending)

    found = decode(JSON, pretty.encode(), b'{"id": 2}')

    assert found.rows == [(1, "a\nb"), (2, None)]
    assert found.records == [0, 1]


def test_broken_json_rejects_only_its_line() -> None:
    found = decode(
        JSON, b'{"id": 1', b'{"id": 2}', b'{"id": 3}\n{"id": "x"}', b'{"note": "\xff"}', b"{}\0"
    )

    assert found.rows == [(2, None), (3, None)]
    assert found.records == [1, 2]
    assert [record for record, _ in found.bad] == [0, 2, 3, 4]
    assert found.bad[1] == (2, 'column "id": expected BIGINT, found "x"')
    assert found.raw[1] == b'{"id": "x"}'


def test_a_json_string_with_a_raw_line_end_is_bad() -> None:
    found = decode(JSON, b'{"id": 1, "note": "a\nb"}', b'{"id": 2}')

    assert found.rows == [(2, None)]
    assert [record for record, _ in found.bad] == [0, 0]


def test_each_element_of_an_array_is_a_row() -> None:
    found = decode(ARRAYS, b'[{"id": 1}, {"id": 2}]', b"[]", b'[{"id": 3},\n{"id": 4}]')

    assert [row[0] for row in found.rows] == [1, 2, 3, 4]
    assert found.records == [0, 0, 2, 2]


def test_a_bad_element_is_rejected_alone_and_an_open_bracket_rejects_the_record() -> None:
    found = decode(ARRAYS, b'[{"id": 1}, 7]', b'[{"id": 2}', b'{"id": 3}', b'[{"id": 4}]')

    assert [row[0] for row in found.rows] == [1, 4]
    assert found.records == [0, 3]
    assert_bad(
        found.bad,
        (0, '"{"', '"7"'),
        (1, "array", "byte 0", "closed"),
        (2, "array", "byte 0", '"{\\"id\\": 3}"'),
    )


def test_a_long_broken_array_is_rejected_completely() -> None:
    long = b"[" + b'{"id": 1, "note": "%s"},' % (b"x" * 1000) * 1500

    found = decode(ARRAYS, b'[{"id": 0}]', long, b'[{"id": 2}]')

    assert found.rows == [(0, None), (2, None)]
    assert_bad(found.bad, (1, "array", "byte 0", "closed"))


def test_the_elements_of_a_long_array_have_the_number_of_their_record() -> None:
    element = b'{"id": 1, "note": "%s"}' % (b"x" * 1000)
    long = b"[" + b",".join([element] * 1500) + b"]"

    found = decode(ARRAYS, b'[{"id": 0}]', long, b'[{"id": 2}]')

    assert [row[0] for row in found.rows] == [0, *[1] * 1500, 2]
    assert found.records == [0, *[1] * 1500, 2]


def test_json_root_selects_the_record_in_a_document() -> None:
    found = decode(replace(JSON, json_root="$.data"), b'{"data": {"id": 1}}', b'{"id": 2}')

    assert found.rows == [(1, None)]
    assert_bad(found.bad, (1, "json_root", "$.data"))


def test_columns_are_found_by_paths() -> None:
    payload = replace(JSON, jsonpaths='["$.key", "$.text[0]"]')

    assert decode(payload, b'{"key": 1, "text": ["a"]}').rows == [(1, "a")]


def test_the_number_of_paths_must_equal_the_number_of_columns() -> None:
    with raises(UserError, Code.TYPE_ERR, "paths", "2", "1"):
        decode(replace(JSON, jsonpaths='["$.key"]'), b"{}")


def test_numbers_are_read_as_their_text_if_set() -> None:
    payload = replace(JSON, num_as_string=True)

    assert decode(payload, b'{"id": 1, "note": 1.50}').rows == [(1, "1.50")]


@pytest.mark.parametrize("text", ["a,b\n{", " a\n", "ü", "a\0b", "\ufeffa"])
def test_a_text_is_the_whole_record(text: str) -> None:
    found = decode(TEXT, text.encode(), b"x", columns=TEXT_COLUMNS)

    assert found.rows == [(text,), ("x",)]


def test_a_text_must_be_utf8() -> None:
    found = decode(TEXT, b"a", b"b\xff", b"c", columns=TEXT_COLUMNS)

    assert found.rows == [("a",), ("c",)]
    assert found.records == [0, 2]
    assert_bad(found.bad, (1, "byte 2", "UTF-8"))
    assert found.raw == [b"b\xff"]


def test_text_records_have_one_column() -> None:
    with raises(UserError, Code.TYPE_ERR, "value STRING", "id, note") as caught:
        decode(TEXT, b"a")

    assert caught.value.code is Code.TYPE_ERR


def test_t85_the_events_of_a_gzip_record_are_rows() -> None:
    events = [{"id": number, "note": f"line {number}"} for number in range(3)]
    message = json.dumps({"messageType": "DATA_MESSAGE", "logEvents": events})
    payload = replace(GZIP, strip_outer_array=True, json_root="$.logEvents")

    found = decode(payload, gzip.compress(message.encode()), gzip.compress(message.encode()))

    assert found.rows == [(0, "line 0"), (1, "line 1"), (2, "line 2")] * 2
    assert found.records == [0, 0, 0, 1, 1, 1]


def test_t85_a_record_that_is_not_a_complete_gzip_stream_is_bad() -> None:
    packed = gzip.compress(b'{"id": 1}', mtime=0)
    damaged = packed[:-8] + b"\0" * 8

    found = decode(
        GZIP, b'{"id": 0}', packed, packed[:-9], damaged, gzip.compress(b" "), packed
    )

    assert found.rows == [(1, None), (1, None)]
    assert found.records == [1, 5]
    assert_bad(found.bad[:2], (0, "gzip", "compressed"), (2, "gzip", "ends"))
    assert_names(found.bad[2][1], "gzip", "broken")
    assert found.raw == [b'{"id": 0}', packed[:-9], damaged]
    assert found.blank == 1


def test_t85_a_record_that_decompresses_to_too_much_is_bad() -> None:
    bomb = gzip.compress(b" " * (2**26 + 1), compresslevel=1)

    found = decode(GZIP, bomb)

    assert_bad(found.bad, (0, "67108864 bytes"))


def test_t85_a_record_of_ten_mebibytes_loads() -> None:
    note = "x" * (10 * 2**20 - 30)
    large = json.dumps({"id": 1, "note": note}).encode()

    found = decode(JSON, b'{"id": 0}', large, b'{"id": 2}')

    assert found.rows == [(0, None), (1, note), (2, None)]


def test_every_row_has_the_metadata_of_its_record() -> None:
    arrived = [datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2, 3)]
    metadata: dict[str, Any] = {
        "_sequence": pa.array(["10", "11", "12"]),
        "_arrived_at": pa.array(arrived, pa.timestamp("us", "UTC")),
        "_shard": pa.array(["a", "a", "a"]),
    }

    found = decode(
        CSV, b"1,a\n2,b", b"x,c", b"3,d", needed=["_sequence", "id", "_arrived_at"], **metadata
    )

    assert found.rows == [("10", 1, arrived[0]), ("10", 2, arrived[0]), ("12", 3, arrived[2])]


def test_a_column_of_the_records_hides_metadata_of_the_same_name() -> None:
    shard = Column(name="_shard", type=Primitive.STRING)

    found = decode(CSV, b"1,own", columns=(ID, shard), _shard=pa.array(["other"]))

    assert found.rows == [(1, "own")]


def test_a_needed_column_that_is_missing_is_an_invariant_error() -> None:
    with raises(InvariantError, Code.INTERNAL_ERR, '"_shard"'):
        decode(CSV, b"1,a", needed=["_shard"])


def test_batches_have_the_needed_columns_in_order() -> None:
    found = decode(JSON, b'{"id": 1, "note": "a"}', needed=["note", "id"])

    assert found.rows == [("a", 1)]
    assert found.parts[0].batch.schema.names == ["note", "id"]


@pytest.mark.parametrize("payload", [CSV, JSON, ARRAYS, TEXT])
def test_rows_are_counted_without_columns(payload: Payload) -> None:
    columns = TEXT_COLUMNS if payload is TEXT else PAIR
    decoder = Decoder(payload, columns=columns, needed=[])

    (part,) = decoder.decode([b"[{}]" if payload is ARRAYS else b"{}"] * 3, {})

    assert (part.batch.num_columns, part.batch.num_rows, part.lines) == (0, 3, 3)


def test_fields_without_a_column_are_rescued_if_needed() -> None:
    found = decode(JSON, b'{"id": 1, "more": 2}', needed=["id", "_rescued"])

    assert found.rows == [(1, '{"more": 2}')]


def test_values_have_the_types_of_their_columns() -> None:
    columns = (
        Column(name="day", type=Primitive.DATE),
        Column(name="ok", type=Primitive.BOOLEAN),
    )

    assert decode(CSV, b"2026-05-01,true", columns=columns).rows == [(date(2026, 5, 1), True)]
    assert decode(JSON, b'{"day": "2026-05-01", "ok": true}', columns=columns).rows == [
        (date(2026, 5, 1), True)
    ]


def test_many_records_are_decoded_in_several_batches_in_order() -> None:
    payloads = [b"%d,%s" % (number, b"x" * 100) for number in range(50_000)]

    found = decode(CSV, *payloads)

    assert len(found.parts) > 1
    assert [row[0] for row in found.rows] == found.records == list(range(50_000))


def test_no_records_yield_no_block() -> None:
    assert decode(CSV).lines == 0
