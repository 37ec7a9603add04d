import pytest

from penstock.errors import Code, UserError
from penstock.sql.lexer import SCRIPT_CHARACTERS_MAX, TokenKind, read_script, tokenize
from tests.error_values import assert_error, raises
from tests.unit.sql.refusal import refusal


def test_a_token_has_its_offsets_after_any_characters() -> None:
    text = "/* 😀 */ -- é\r\nSHOW 'ü' `x`"

    tokens = tokenize(read_script(text))

    assert [text[token.start : token.end] for token in tokens] == ["SHOW", "'ü'", "`x`"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r'"a ""b"""', 'a "b"'),
        (r"'a\nb\tc\\d'", "a\nb\tc\\d"),
        (r"'\u0041\U0001F600\101'", "A😀A"),
        (r"'100\% \_'", r"100\% \_"),
        (r"'\z'", "z"),
        (r"r'a\nb'", r"a\nb"),
        (r"'\uD800'", "?"),
        ("'two\nlines'", "two\nlines"),
        ("''", ""),
        ("'-- no comment /* '", "-- no comment /* "),
    ],
)
def test_a_string_is_parsed_as_in_spark(written: str, meant: str) -> None:
    tokens = tokenize(read_script(written))

    assert [(token.kind, token.text) for token in tokens] == [(TokenKind.TEXT, meant)]


@pytest.mark.parametrize(
    ("written", "kind", "meant"),
    [
        ("`a``b`", TokenKind.NAME, "a`b"),
        ("`a\\n`", TokenKind.NAME, "a\\n"),
        ("größe_2", TokenKind.WORD, "größe_2"),
        ("2024_orders", TokenKind.WORD, "2024_orders"),
        ("1L", TokenKind.NUMBER, "1L"),
        ("1.5e-3", TokenKind.NUMBER, "1.5e-3"),
        ("X'1F'", TokenKind.LITERAL, "X'1F'"),
        ("0x1F", TokenKind.LITERAL, "0x1F"),
        ("+", TokenKind.SYMBOL, "+"),
    ],
)
def test_a_name_number_or_literal_is_one_token(
    written: str, kind: TokenKind, meant: str
) -> None:
    tokens = tokenize(read_script(written))

    assert [(token.kind, token.text) for token in tokens] == [(kind, meant)]


def test_comments_nest_and_produce_no_tokens() -> None:
    tokens = tokenize(read_script("a /* b /* c */ d */ e -- f\rg"))

    assert [token.text for token in tokens] == ["a", "e", "g"]


def test_a_letter_that_is_ascii_only_in_upper_case_is_not_part_of_a_keyword() -> None:
    (token,) = tokenize(read_script("\u017fhow"))

    assert token.text.upper() == "SHOW"
    assert token.keyword == ""


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("SHOW\n ¦'jobs", ("string", "closed")),
        ('x ¦"jobs', ("string", "closed")),
        ("¦r'jobs", ("string", "closed")),
        ("¦x'1F", ("string", "closed")),
        ("¦'jobs\\", ("string", "closed")),
        ("SHOW ¦`jobs``", ("name", "closed")),
        ("SHOW ¦/* jobs", ("comment", "closed")),
        ("¦/* /* */", ("comment", "closed")),
        ("¦X'zz'", ("X'…'",)),
        ("SHOW ¦{# x #} JOBS", ('"{"',)),
        ("¦{# x", ('"{"',)),
        ("a¦😀", ('"😀"',)),
        ("a ¦\x00", ("U+0000",)),
        ("a\r\n¦'\\0'", ("string", "U+0000")),
    ],
)
def test_an_invalid_token_is_refused_with_its_position(
    script: str, named: tuple[str, ...]
) -> None:
    error = refusal(script, parse=lambda text: tokenize(read_script(text)))

    assert_error(error, Code.SYNTAX_ERR, *named)


def test_an_unpaired_surrogate_is_refused() -> None:
    with raises(UserError, Code.SYNTAX_ERR, "U+D800") as caught:
        read_script("SHOW \ud800")

    assert caught.value.detail == "Line 1, column 6."


def test_a_script_that_is_too_long_is_refused_before_tokenizing() -> None:
    with raises(UserError, Code.SYNTAX_ERR, "1000000", "1000001"):
        read_script(" " * (SCRIPT_CHARACTERS_MAX + 1))
