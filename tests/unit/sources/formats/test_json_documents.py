"""Arrays, parts of documents, paths and rescued fields of JSON become rows."""

import io
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Code, UserError
from penstock.sources.files.kind import FileFormat, FilesOptions, MissingColumns
from penstock.sources.formats.blocks import RecordBlock, Wanted
from penstock.sources.formats.json_reader import (
    JsonLayout,
    json_layout,
    json_reading,
    read_json,
)
from tests.error_values import raises

TYPE_BY_COLUMN: dict[str, pa.DataType] = {"id": pa.int64(), "note": pa.string()}
COLUMNS = pa.schema(TYPE_BY_COLUMN)


def layout(**options: Any) -> JsonLayout:
    return json_layout(FilesOptions(uri="file:///in/", format=FileFormat.JSON, **options))


def read(
    content: bytes,
    *,
    columns: pa.Schema = COLUMNS,
    wanted: tuple[str, ...] | None = None,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
    **options: Any,
) -> list[RecordBlock]:
    names = tuple(columns.names) if wanted is None else wanted
    reading = json_reading(
        Wanted(columns=columns, names=names, missing=missing, rescue=rescue),
        layout=layout(**options),
    )
    return list(read_json(io.BytesIO(content), reading=reading, start=0, end=None))


def rows(blocks: list[RecordBlock]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for block in blocks for row in block.batch.to_pylist()]


def errors(blocks: list[RecordBlock]) -> list[tuple[int, str]]:
    return [(bad.record, bad.error) for block in blocks for bad in block.bad]


def value_of(line: bytes, arrow: pa.DataType, **options: Any) -> object:
    ((value,),) = rows(read(line, columns=pa.schema([("v", arrow)]), **options))
    return value


def test_without_options_the_layout_is_plain() -> None:
    assert layout().plain
    assert layout(json_root="$").plain


@pytest.mark.parametrize(
    "options",
    [
        {"strip_outer_array": True},
        {"json_root": "$.data"},
        {"jsonpaths": '["$.id"]'},
        {"num_as_string": True},
    ],
)
def test_any_option_changes_the_plain_layout(options: dict[str, Any]) -> None:
    assert not layout(**options).plain


@pytest.mark.parametrize("text", ["$.a", "[", "{}", "[]", "[1]", '["$.a", null]', "[" * 10_000])
def test_jsonpaths_are_an_array_of_strings(text: str) -> None:
    with raises(UserError, Code.OPTION_ERR, '"jsonpaths"', "JSON") as caught:
        layout(jsonpaths=text)

    assert caught.value.code is Code.OPTION_ERR
    assert caught.value.hint


def test_the_error_of_a_bad_path_names_the_option() -> None:
    with raises(UserError, Code.OPTION_ERR, '"jsonpaths"', '"$.a[*]"'):
        layout(jsonpaths='["$.id", "$.a[*]"]')


@pytest.mark.parametrize(
    "content",
    [
        b'[{"id":1,"note":"a"},{"id":2,"note":"b"}]',
        b'[{"id":1,"note":"a"},{"id":2,"note":"b"}]\n',
        b'\xef\xbb\xbf \n[\n  {"id": 1,\n   "note": "a"},\r\n\t{"note": "b", "id": 2}\n]\n\n',
        b'[{"id":1,"note":"a"}][{"id":2,"note":"b"}]',
        b'[{"id":1,"note":"a"}]\n[]\n[ ]\n[{"id":2,"note":"b"}]\n',
        b'[{"id":1,"note":"a","x":[{"y":"],[{"}]},{"id":2,"note":"b","x":"\\"]\\\\"}]',
    ],
)
def test_the_elements_of_arrays_are_records(content: bytes) -> None:
    (block,) = read(content, strip_outer_array=True)

    assert rows([block]) == [(1, "a"), (2, "b")]
    assert (block.lines, block.blank, block.bad) == (2, 0, ())
    assert list(block.record_of_row) == [0, 1]


@pytest.mark.parametrize(
    ("content", "found", "bad"),
    [
        (b"", [], []),
        (b'\xef\xbb\xbf{"id":1}\r\n{}', [(1, None), (None, None)], []),
        (
            b'x\n\n{"id":1}',
            [(1, None)],
            [(0, 'a record must start with "{", found "x"')],
        ),
    ],
)
@pytest.mark.parametrize("num_as_string", [False, True])
def test_options_do_not_change_how_lines_are_read(
    *, content: bytes, found: list[Any], bad: list[Any], num_as_string: bool
) -> None:
    blocks = read(content, num_as_string=num_as_string)

    assert rows(blocks) == found
    assert errors(blocks) == bad
