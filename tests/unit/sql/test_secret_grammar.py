"""How secrets are written in statements, and what is said of them when they are wrong."""

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
def test_statements_about_secrets_are_read(text: str, statement: Statement) -> None:
    assert parsed(text) == statement


@pytest.mark.parametrize("value", ["SECRET 'lake'", "SECRET Lake", "secret `lake`"])
def test_an_option_refers_to_a_secret_by_name(value: str) -> None:
    statement = parsed(f"ALTER JOB j PROPERTIES('k' = {value}, 'word' = secret)")

    assert isinstance(statement, AlterJob)
    assert statement.properties == (("k", "secret:lake"), ("word", "secret"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE SECRET (a = 'CANARY')",
            'expected a secret name after CREATE SECRET, found "("',
        ),
        (
            "CREATE SECRET s",
            'expected "(" after the secret name, found the end of the statement',
        ),
        ("CREATE SECRET s CANARY", 'expected "(" after the secret name, found a text'),
        ("CREATE SECRET s ()", "a secret must have at least one value"),
        ("CREATE SECRET s ('CANARY')", 'expected "=" after the key, found ")"'),
        ("CREATE SECRET s (CANARY 'x')", 'expected "=" after the key, found a text'),
        ("CREATE SECRET s (a = )", 'expected a value after "a" =, found ")"'),
        ("CREATE SECRET s (a = '')", 'value of "a" must not be empty'),
        ("CREATE SECRET s ('' = 'CANARY')", "a key must not be empty"),
        ("CREATE SECRET s (a = 'x', A = 'CANARY')", 'key "a" is given twice'),
        ("CREATE SECRET s (a = x/CANARY)", 'expected "," or ")" after the value, found a text'),
        (
            "CREATE SECRET s (a = 'x' CANARY)",
            'expected "," or ")" after the value, found a text',
        ),
        ("CREATE SECRET s (a = -CANARY)", 'expected a value after "a" =, found a text'),
        ("CREATE SECRET s (a = 'x',)", 'expected a key after ",", found ")"'),
        ("CREATE SECRET s (a = 'x') CANARY", "expected the end of the statement, found a text"),
        ("CREATE SECRET s (a = SECRET 'CANARY')", "a secret must not refer to a secret"),
        ("CREATE SECRET s (a = 'secret:CANARY')", "a secret must not refer to a secret"),
        (
            "CREATE SECRET s (a = 'CANARY', b = '***')",
            'value of "b" must not be ***, which stands where a value was hidden',
        ),
        (f"DROP SECRET {'s' * 129}", "secret name must have at most 128 characters, not 129"),
        ("DROP SECRET ''", "secret name must not be empty"),
        (
            "ALTER JOB j PROPERTIES('token' = 'x', 'CANARY')",
            'expected "=" after the key, found ")"',
        ),
        (
            "ALTER JOB j PROPERTIES('token' = -CANARY)",
            'expected a value after "token" =, found a text',
        ),
        (
            "ALTER JOB j PROPERTIES('token' = x CANARY)",
            'expected ")" after the list after PROPERTIES, found a text',
        ),
    ],
)
def test_a_mistake_is_named_without_the_secret(text: str, message: str) -> None:
    error = refusal(text)

    assert (error.code, error.message) == (Code.SYNTAX_ERR, message)
    assert "CANARY" not in error.message + error.detail + error.hint


def test_a_statement_does_not_show_its_values() -> None:
    statement = parsed("CREATE SECRET s (a = 'CANARY')")

    assert "CANARY" not in repr(statement)


def test_a_hidden_value_must_be_typed_again() -> None:
    error = refusal("ALTER SECRET s (a = '***')")

    assert error.hint == "Type the value anew, or give 'env:VARIABLE' or 'file:/path'."
