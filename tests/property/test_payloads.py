"""The result of a stream record does not depend on its neighbours."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.formats import TEXT_COLUMNS, Payload, PayloadCompression, PayloadFormat
from penstock.model.schema import Array, Column, Decimal, Primitive
from penstock.sources.formats.payloads import Decoder

COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="note", type=Primitive.STRING),
    Column(name="price", type=Primitive.DOUBLE),
    Column(name="total", type=Decimal(precision=10, scale=2)),
    Column(name="day", type=Primitive.DATE),
)
TAGGED = (*COLUMNS, Column(name="tags", type=Array(element=Primitive.STRING)))
NAMES = [column.name for column in COLUMNS]
MARK = b"\xef\xbb\xbf"

rough = st.binary(max_size=12) | st.sampled_from(
    [b" ", b"\n", b"\r", b"\r\n", b"\t", b"\0", b"\xff", b'"', b"\\", b",", b"{", b"[", MARK]
)
texts = st.text(max_size=6) | st.sampled_from(["1", "-7", "0.25", "2026-02-28", "\\N", '"', ""])


def mixed(rows: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Return a strategy for lists of records with good rows, several rows and broken rows."""
    several = st.lists(rows | rough, max_size=4).map(b"\n".join)
    broken = st.tuples(rough, rows, rough).map(b"".join)
    return st.lists(rows | several | broken | rough, max_size=10)


def csv_row(fields: list[str]) -> bytes:
    return ",".join(fields).encode(errors="surrogatepass")


def quoted_row(fields: list[str]) -> bytes:
    return ",".join(json.dumps(field, ensure_ascii=False) for field in fields).encode()


good_csv = st.tuples(st.integers(0, 10**20).map(str), texts, st.just("0.5")).map(
    lambda fields: ",".join(fields).encode()
)
csv_rows = good_csv | st.lists(texts, min_size=1, max_size=6).map(csv_row)
quoted_rows = csv_rows | st.lists(texts, min_size=1, max_size=5).map(quoted_row)
values = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | texts
objects = st.dictionaries(st.sampled_from([*NAMES, "tags", "other"]), values, max_size=4)
json_rows = objects.map(lambda record: json.dumps(record).encode())
pretty_rows = objects.map(lambda record: json.dumps(record, indent=1).encode())
json_arrays = st.lists(objects | values, max_size=4).map(lambda rows: json.dumps(rows).encode())

CSV = Payload(format=PayloadFormat.CSV, column_separator=",")
ENCLOSED = replace(CSV, enclose='"', escape="\\", trim_double_quotes=True)
JSON = Payload(format=PayloadFormat.JSON)
ARRAYS = replace(JSON, strip_outer_array=True)
TEXT = Payload(format=PayloadFormat.TEXT)


def results(
    payload: Payload, payloads: Sequence[bytes], columns: tuple[Column, ...], first: int = 0
) -> dict[int, list[str]]:
    """Return the rows and errors of every record, and the number of blank records."""
    needed = [column.name for column in columns] + ["_sequence"]
    decoder = Decoder(payload, columns=columns, needed=needed)
    sequences = pa.array([first + at for at in range(len(payloads))], pa.int64())
    found: dict[int, list[str]] = {first + at: [] for at in range(len(payloads))}
    blank = 0
    for part in decoder.decode(payloads, {"_sequence": sequences}):
        rows = part.batch.to_pylist()
        assert part.batch.schema.names == needed
        assert part.lines == len(rows) + part.blank + len(part.bad)
        assert [first + record for record in part.record_of_row] == [
            row["_sequence"] for row in rows
        ]
        for row in rows:
            found[row["_sequence"]].append(str(row))
        for bad in part.bad:
            found[first + bad.record].append(f"bad: {bad.error} {bad.raw!r}")
        blank += part.blank
    found[-1] = [f"blank: {blank}"]
    return {record: sorted(result) for record, result in found.items()}


def order(
    payload: Payload, payloads: Sequence[bytes], columns: tuple[Column, ...]
) -> list[int]:
    decoder = Decoder(payload, columns=columns, needed=[])
    return [record for part in decoder.decode(payloads, {}) for record in part.record_of_row]


def require_independence(
    payload: Payload, payloads: list[bytes], columns: tuple[Column, ...] = COLUMNS
) -> None:
    payloads = [text for text in payloads if text]
    together = results(payload, payloads, columns)

    alone = [results(payload, [text], columns, first=at) for at, text in enumerate(payloads)]

    blank = sum(int(result.pop(-1)[0].removeprefix("blank: ")) for result in alone)
    expected = {record: lines for result in alone for record, lines in result.items()}
    assert together == {**expected, -1: [f"blank: {blank}"]}
    numbers = order(payload, payloads, columns)
    assert numbers == sorted(numbers)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(csv_rows))
def test_records_of_csv_do_not_influence_each_other(payloads: list[bytes]) -> None:
    require_independence(CSV, payloads)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(quoted_rows))
def test_records_of_enclosed_csv_do_not_influence_each_other(payloads: list[bytes]) -> None:
    require_independence(ENCLOSED, payloads)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(json_rows | pretty_rows))
def test_records_of_json_do_not_influence_each_other(payloads: list[bytes]) -> None:
    require_independence(JSON, payloads, TAGGED)


@settings(deadline=None, max_examples=80)
@given(payloads=mixed(json_rows | json_arrays), root=st.sampled_from(["", "$.note"]))
def test_records_of_json_arrays_do_not_influence_each_other(
    payloads: list[bytes], root: str
) -> None:
    require_independence(replace(ARRAYS, json_root=root), payloads)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(json_rows), num_as_string=st.booleans())
def test_records_of_json_documents_do_not_influence_each_other(
    payloads: list[bytes], *, num_as_string: bool
) -> None:
    paths = json.dumps([f"$.{name}" for name in NAMES])

    require_independence(replace(JSON, jsonpaths=paths, num_as_string=num_as_string), payloads)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(st.text().map(str.encode)))
def test_records_of_text_do_not_influence_each_other(payloads: list[bytes]) -> None:
    require_independence(TEXT, payloads, TEXT_COLUMNS)


@settings(deadline=None, max_examples=100)
@given(payloads=mixed(json_rows), packed=st.lists(st.booleans(), min_size=12, max_size=12))
def test_compressed_records_do_not_influence_each_other(
    payloads: list[bytes], packed: list[bool]
) -> None:
    mixture = [
        gzip.compress(text, mtime=0) if pack else text
        for text, pack in zip(payloads, packed, strict=False)
    ]

    require_independence(replace(JSON, compress_type=PayloadCompression.GZIP), mixture)
