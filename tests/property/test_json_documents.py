"""The result of a JSON record depends neither on its neighbours nor on the reading path."""

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError, Wanted
from penstock.sources.formats.json_arrays import JsonSource, read_elements
from penstock.sources.formats.json_reader import (
    JsonLayout,
    json_reading,
    read_json,
    read_one_by_one,
)
from penstock.sources.formats.json_values import json_path

TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "qty": pa.int8(),
    "price": pa.float64(),
    "paid": pa.bool_(),
    "note": pa.string(),
    "total": pa.decimal128(10, 2),
    "day": pa.date32(),
    "tags": pa.list_(pa.string()),
    "customer": pa.struct([("city", pa.string())]),
    "counts": pa.map_(pa.string(), pa.int64()),
}
COLUMNS = pa.schema(TYPES)
LINES = JsonLayout()
ARRAYS = JsonLayout(strip_outer_array=True)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.dates().map(str),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["city", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)
names = st.sampled_from([*TYPES, "unknown", "_rescued"])
records = st.dictionaries(names, anything, max_size=4).map(json.dumps)
# Texts with balanced brackets; some of them are not records.
odd = st.sampled_from(
    [
        "null",
        "1",
        '"{"',
        "[]",
        "{}",
        '{"id":01}',
        '{"id":1,"id":2}',
        '{"id":1} {}',
        "{,}",
    ]
)
texts = st.lists(records | odd, max_size=8)


def wanted(columns: pa.Schema, *, rescue: bool = False) -> Wanted:
    return Wanted(columns=columns, names=tuple(columns.names), rescue=rescue)


def read(content: bytes, *, layout: JsonLayout, rescue: bool = False) -> list[RecordBlock]:
    reading = json_reading(wanted(COLUMNS, rescue=rescue), layout=layout)
    return list(read_json(io.BytesIO(content), reading=reading, start=0, end=None))


def results(blocks: list[RecordBlock]) -> list[str]:
    """Return the values or the error of every record, in order."""
    found = []
    for block in blocks:
        result_by_line = {bad.record: bad.error for bad in block.bad}
        for row, values in enumerate(block.batch.to_pylist()):
            result_by_line[int(block.record_of_row[row])] = str(values)
        assert len(result_by_line) == block.lines - block.blank
        found += [result_by_line[line] for line in sorted(result_by_line)]
    return found


def lines(texts: list[str]) -> bytes:
    return "\n".join(texts).encode()


def array(texts: list[str]) -> bytes:
    return f"[{' , '.join(texts)}]".encode()


@settings(deadline=None, max_examples=200)
@given(texts=texts)
def test_a_record_has_the_same_result_alone_and_with_others(texts: list[str]) -> None:
    sources = [JsonSource(text=text.encode(), line=True) for text in texts]
    one_by_one = read_one_by_one(sources, reading=json_reading(wanted(COLUMNS)))

    assert results(read(lines(texts), layout=LINES)) == results([one_by_one])
    assert results(read(array(texts), layout=ARRAYS)) == results([one_by_one])


@settings(deadline=None, max_examples=100)
@given(texts=texts)
def test_paths_and_rescued_fields_do_not_change_the_result(texts: list[str]) -> None:
    paths = tuple(json_path(f"$.{name}", option="jsonpaths") for name in COLUMNS.names)

    by_name = results(read(lines(texts), layout=LINES))
    by_path = results(read(lines(texts), layout=JsonLayout(paths=paths)))
    rescued = read(lines(texts), layout=LINES, rescue=True)
    without = [
        replace(block, batch=block.batch.drop_columns(["_rescued"])) for block in rescued
    ]

    assert by_path == by_name
    assert results(without) == by_name


@settings(deadline=None, max_examples=100)
@given(texts=texts, num_as_string=st.booleans())
def test_the_result_of_a_record_does_not_depend_on_its_neighbours(
    *, texts: list[str], num_as_string: bool
) -> None:
    layout = JsonLayout(
        strip_outer_array=True,
        root=json_path("$.d", option="json_root"),
        num_as_string=num_as_string,
    )
    documents = [f'{{"d":{text}}}' for text in texts]

    together = results(read(array(documents), layout=layout, rescue=True))
    alone = [
        result
        for document in documents
        for result in results(read(document.encode(), layout=layout, rescue=True))
    ]

    assert together == alone


@settings(deadline=None, max_examples=100)
@given(record=st.dictionaries(st.text(max_size=4), anything, max_size=5))
def test_rescued_fields_are_json_of_the_original_values(record: dict[str, Any]) -> None:
    line = json.dumps(record)
    reading = json_reading(wanted(pa.schema([]), rescue=True))

    (block,) = read_json(io.BytesIO(line.encode()), reading=reading, start=0, end=None)

    (rescued,) = block.batch.column("_rescued").to_pylist()

    numbers: dict[str, Any] = {"parse_float": str, "parse_int": str, "parse_constant": str}
    written: dict[str, Any] = json.loads(line, **numbers)
    assert (json.loads(rescued, **numbers) if rescued else {}) == written


@settings(deadline=None, max_examples=300)
@given(
    elements=st.lists(anything, max_size=6),
    indent=st.none() | st.integers(0, 2),
    chunk_bytes=st.integers(1, 20),
)
def test_elements_end_where_the_json_parser_ends_them(
    elements: list[Any], indent: int | None, chunk_bytes: int
) -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(chunk_bytes, size or 0))

    content = json.dumps(elements, indent=indent).encode()

    found = list(read_elements(Trickle(content + b"\n" + content), objects=False))

    again = [json.dumps(json.loads(element)) for element in found]
    assert again == [json.dumps(element) for element in [*elements, *elements]]
    assert all(element in content and element == element.strip() for element in found)


@settings(deadline=None, max_examples=300)
@given(content=st.lists(st.sampled_from(list('[]{}",:\\ 1n\n')), max_size=30).map("".join))
def test_any_text_has_records_or_is_unreadable(content: str) -> None:
    try:
        blocks = read(content.encode(), layout=ARRAYS)
    except UnreadableFileError:
        return

    assert all(block.lines == block.batch.num_rows + len(block.bad) for block in blocks)
