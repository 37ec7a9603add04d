"""Parsing of statements about secrets, and their errors."""

import pytest

from penstock.errors import Code
from penstock.sql.parser import parse_script
from penstock.sql.statements import (
    AlterJob,
    AlterSecret,
    CreateSecret,
    DropSecret,
    ShowSecrets,
    Statement,
)
from tests.error_values import assert_error, assert_names
from tests.unit.sql.refusal import refusal


def parsed(text: str) -> Statement:
    (one,) = parse_script(text)
    return one.statement


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "CREATE SECRET Lake (s3.access_key = 'AKIA', 'S3.secret_key' = \"w'J\")",
            CreateSecret(
                name="lake", values=(("s3.access_key", "AKIA"), ("s3.secret_key", "w'J"))
            ),
        ),
        (
            "create secret if not exists 'My Lake' (`a`.b=007, c = word)",
            CreateSecret(
                name="my lake", values=(("a.b", "007"), ("c", "word")), if_not_exists=True
            ),
        ),
        (
            "CREATE SECRET s (k = 'env:K', p = 'file:/run/p', secret = SECRET)",
            CreateSecret(
                name="s", values=(("k", "env:K"), ("p", "file:/run/p"), ("secret", "SECRET"))
            ),
        ),
        ("ALTER SECRET `s-1` (k = 'v')", AlterSecret(name="s-1", values=(("k", "v"),))),
        ("DROP SECRET IF EXISTS s", DropSecret(name="s", if_exists=True)),
        ("DROP SECRET S", DropSecret(name="s")),
        ("SHOW SECRETS", ShowSecrets()),
    ],
)
def test_statements_about_secrets_are_parsed(text: str, statement: Statement) -> None:
    assert parsed(text) == statement


@pytest.mark.parametrize("value", ["SECRET 'lake'", "SECRET Lake", "secret `lake`"])
def test_an_option_refers_to_a_secret_by_name(value: str) -> None:
    statement = parsed(f"ALTER JOB j PROPERTIES('k' = {value}, 'word' = secret)")

    assert isinstance(statement, AlterJob)
    assert statement.properties == (("k", "secret:lake"), ("word", "secret"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "CREATE SECRET (a = 'CANARY')",
            ("CREATE SECRET", '"("'),
        ),
        (
            "CREATE SECRET s",
            ('"("', "end"),
        ),
        ("CREATE SECRET s CANARY", ('"("', "text")),
        ("CREATE SECRET s ()", ("secret", "value")),
        ("CREATE SECRET s ('CANARY')", ('"="', '")"')),
        ("CREATE SECRET s (CANARY 'x')", ('"="',)),
        ("CREATE SECRET s (a = )", ('"a"', '")"')),
        ("CREATE SECRET s (a = '')", ("value", '"a"')),
        ("CREATE SECRET s ('' = 'CANARY')", ("key",)),
        ("CREATE SECRET s (a = 'x', A = 'CANARY')", ("key", '"a"')),
        ("CREATE SECRET s (a = x/CANARY)", ('","', '")"')),
        (
            "CREATE SECRET s (a = 'x' CANARY)",
            ('","', '")"'),
        ),
        ("CREATE SECRET s (a = -CANARY)", ('"a" =', "text")),
        ("CREATE SECRET s (a = 'x',)", ("key", '","', '")"')),
        ("CREATE SECRET s (a = 'x') CANARY", ("end", "text")),
        ("CREATE SECRET s (a = SECRET 'CANARY')", ("refer",)),
        ("CREATE SECRET s (a = 'secret:CANARY')", ("refer",)),
        (
            "CREATE SECRET s (a = 'CANARY', b = '***')",
            ('"b"',),
        ),
        (f"DROP SECRET {'s' * 129}", ("128", "129")),
        ("DROP SECRET ''", ("secret name",)),
        (
            "ALTER JOB j PROPERTIES('token' = 'x', 'CANARY')",
            ('"="', '")"'),
        ),
        (
            "ALTER JOB j PROPERTIES('token' = -CANARY)",
            ('"token"',),
        ),
        (
            "ALTER JOB j PROPERTIES('token' = x CANARY)",
            ('")"', "PROPERTIES"),
        ),
    ],
)
def test_a_syntax_error_does_not_show_the_secret(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert_error(error, Code.SYNTAX_ERR, *named)
    assert "CANARY" not in error.message + error.detail + error.hint


def test_the_repr_of_create_secret_does_not_show_its_values() -> None:
    statement = parsed("CREATE SECRET s (a = 'CANARY')")

    assert "CANARY" not in repr(statement)


def test_a_hidden_value_must_be_typed_again() -> None:
    error = refusal("ALTER SECRET s (a = '***')")

    assert_names(error.hint, "'env:VARIABLE'", "'file:/path'")
