"""Options define the layout of CSV; ambiguous layouts are refused."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import Code, UserError
from penstock.sources.files.kind import FileFormat, FilesOptions
from penstock.sources.formats.csv_text import CsvLayout, csv_layout, csv_splittable
from tests.error_values import assert_names


def layout_of(**values: Any) -> CsvLayout:
    options = FilesOptions(uri="file:///in/*.csv", format=FileFormat.CSV)
    return csv_layout(replace(options, **values))


def test_without_options_fields_are_separated_by_tabs() -> None:
    assert layout_of() == CsvLayout(separator=b"\t", ending=b"\n")


@pytest.mark.parametrize(
    ("written", "separator"),
    [
        (",", b","),
        ("||", b"||"),
        ("\\t", b"\t"),
        ("\\x01", b"\x01"),
        ("\\x01\\x02", b"\x01\x02"),
        ("a\\x7Cb", b"a|b"),
        ("\\", b"\\"),
        ("é", "é".encode()),
        ("\\x00", b"\0"),
    ],
)
def test_a_separator_is_text_or_character_codes(written: str, separator: bytes) -> None:
    assert layout_of(column_separator=written).separator == separator


def test_a_line_delimiter_is_text_or_character_codes() -> None:
    assert layout_of(line_delimiter="\\r\\n").ending == b"\r\n"


@pytest.mark.parametrize(
    ("format_", "header_lines"),
    [
        (FileFormat.CSV, 0),
        (FileFormat.CSV_WITH_NAMES, 1),
        (FileFormat.CSV_WITH_NAMES_AND_TYPES, 2),
    ],
)
def test_the_format_determines_the_number_of_header_lines(
    format_: FileFormat, header_lines: int
) -> None:
    assert layout_of(format=format_).header_lines == header_lines


def test_an_escape_equal_to_the_enclosing_character_is_ignored() -> None:
    assert layout_of(enclose='"', escape='"').escape is None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"column_separator": ""}, ('"column_separator"', "empty")),
        ({"line_delimiter": ""}, ('"line_delimiter"', "empty")),
        ({"line_delimiter": "aba"}, ('"line_delimiter"', "start and end")),
        ({"line_delimiter": "||"}, ('"line_delimiter"', "start and end")),
        ({"column_separator": "\n"}, ("contain",)),
        ({"column_separator": "a", "line_delimiter": "ab"}, ("contain",)),
        ({"column_separator": "ab", "line_delimiter": "b"}, ("contain",)),
        ({"enclose": "''"}, ('"enclose"', "ASCII", "\"''\"")),
        ({"escape": "é"}, ('"escape"', "ASCII", '"é"')),
        ({"enclose": "\t"}, ('"column_separator"', "occur")),
        ({"escape": "\n"}, ('"line_delimiter"', "occur")),
        ({"column_separator": "||", "enclose": "|"}, ('"enclose"', '"|"')),
    ],
)
def test_an_ambiguous_layout_is_refused(values: dict[str, str], named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as raised:
        layout_of(**values)

    assert_names(raised.value.message, *named)
    assert raised.value.code == Code.OPTION_ERR
    assert raised.value.hint


@pytest.mark.parametrize(("enclose", "splittable"), [(None, True), (b'"', False)])
def test_a_file_is_splittable_unless_fields_can_contain_line_ends(
    *, enclose: bytes | None, splittable: bool
) -> None:
    assert csv_splittable(CsvLayout(enclose=enclose)) is splittable
