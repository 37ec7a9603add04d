"""Paths select one part of a JSON document."""

import pytest

from penstock.errors import Code, UserError
from penstock.sources.formats.json_values import (
    BadRecordError,
    NoSuchPartError,
    decode_document,
    json_path,
)
from tests.error_values import assert_names, raises

DOCUMENT = (
    b'{"a":{"b":[{"c":1},null]},"odd name":2,"it\'s":3,"a.b":4,"":5,"\xc3\xb8":6,"n":null}'
)


def part(path: str, document: bytes = DOCUMENT) -> object:
    return json_path(path, option="jsonpaths").part_of(decode_document(document))


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", ()),
        ("$.a", ("a",)),
        ("$.a.b", ("a", "b")),
        ("$.a[0].b", ("a", 0, "b")),
        ("$[12][3]", (12, 3)),
        ("$['odd name']", ("odd name",)),
        ('$["odd name"].x', ("odd name", "x")),
        (r"$['it\'s']", ("it's",)),
        (r"$['a\\b']", ("a\\b",)),
        ("$['a.b[0]*']", ("a.b[0]*",)),
        ("$['']", ("",)),
        ("$.ø-1$", ("ø-1$",)),
    ],
)
def test_a_path_is_parsed_into_steps(path: str, steps: tuple[str | int, ...]) -> None:
    assert json_path(path, option="jsonpaths").steps == steps


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.a.b[0].c", "1"),
        ("$.a.b[1]", None),
        ("$['odd name']", "2"),
        (r"$['it\'s']", "3"),
        ("$['a.b']", "4"),
        ("$['']", "5"),
        ("$.ø", "6"),
        ("$.n", None),
    ],
)
def test_a_path_returns_a_part_of_the_document(path: str, value: object) -> None:
    assert part(path) == value


@pytest.mark.parametrize(
    "path", ["$.x", "$.a.x", "$.a.b[2]", "$.a[0]", "$.n.x", "$[0]", "$.a.b.c"]
)
def test_a_path_that_does_not_exist_raises(path: str) -> None:
    with pytest.raises(NoSuchPartError):
        part(path)


def test_a_path_through_a_repeated_key_is_refused() -> None:
    with pytest.raises(BadRecordError) as caught:
        part("$.a.b.c", b'{"a":{"b":1,"b":2}}')

    assert_names(str(caught.value), '"b"', "more than once")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("", ("$", '""')),
        ("a.b", ("$", '"a.b"')),
        ("$.a[*]", ('"$.a[*]"', '"[*]"')),
        ("$..a", ('"$..a"', '".."')),
        ("$.*", ('"$.*"', '".*"')),
        *(
            ("$" + step, (f'"${step}"', ".name", "[0]", "['odd name']", f'"{step}"'))
            for step in ("a", ".", ". a", "[-1]", "[a]", "[", "['a]", "[1:2]")
        ),
    ],
)
def test_a_malformed_path_is_refused(path: str, named: tuple[str, ...]) -> None:
    with raises(UserError, Code.OPTION_ERR, '"json_root"', *named, hint=()):
        json_path(path, option="json_root")
