"""Masked statements and errors contain no secret, in any syntax."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.model.secrets import is_secret_key
from penstock.sql.masking import may_contain_secret, visible_part
from penstock.sql.parser import parse_script

CANARY = "CANARY"
# Keys whose values are always secret. Other keys are secret only in CREATE SECRET.
SECRET_KEYS = [
    "access_key",
    "s3.access_key",
    "S3.Secret_Key",
    "aws.access_key",
    "aws.secret_key",
    "aws.session_key",
    "aws.session_token",
    "property.aws.secret.key",
    "session_key",
    "property.sasl.password",
    "TOKEN",
    "azure.account_key",
    "sas_token",
    "service_account",
    "a.private_key",
    "passphrase",
    "secret",
    "x.secret",
    "property.sasl.jaas.config",
]
WRONG = ["", "", "", "(", ")", ",", ";", "=", "'x'", "x", "WHERE", "-", "SELECT", '"k" = "v"']

spaces = st.sampled_from(["", " ", "\n", "\t ", " /* a comment */ ", " -- a comment\n", "  "])
values = st.sampled_from(
    [
        f"'{CANARY}'",
        f'"{CANARY}"',
        f"'a {CANARY} b'",
        f"'a'' {CANARY}'",
        f'"\\n{CANARY}\\\\"',
        f"r'{CANARY}'",
        f"N'{CANARY}'",
        CANARY,
        f"a/{CANARY}+b==",
        f"x{CANARY}1",
        f"`{CANARY}`",
        f"a b {CANARY} c",
        f"concat('a', '{CANARY}')",
        f"'a' || '{CANARY}'",
        f"-{CANARY}",
        f"/* {CANARY} */ 'x'",
    ]
)


@st.composite
def keys(draw: st.DrawFn, names: st.SearchStrategy[str]) -> str:
    """Draw a key with or without quotes."""
    key = draw(names)
    assert is_secret_key(key) or key == "anything"
    quote = draw(st.sampled_from(["'", '"', "`", ""]))
    return f"{quote}{key}{quote}"


@st.composite
def lists(draw: st.DrawFn, names: st.SearchStrategy[str]) -> str:
    """Draw a list of keys and values; one of them is a secret."""
    pair = draw(spaces).join(
        [draw(keys(names)), draw(st.sampled_from(["=", "=", "=", "==", "=>"])), draw(values)]
    )
    others = draw(st.lists(st.sampled_from(["'a' = 'b'", '"n"=1']), max_size=2))
    others.insert(draw(st.integers(0, len(others))), pair)
    return draw(spaces).join(["(", (draw(spaces) + ",").join(others), ")"])


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Draw a statement that contains a secret."""
    head = draw(
        st.sampled_from(
            [
                "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM FILES",
                "CREATE JOB j PROPERTIES",
                "ALTER JOB j PROPERTIES",
                "CREATE ROUTINE LOAD j ON t FROM KINESIS",
                "CREATE ROUTINE LOAD j ON t WHERE a > 1 PROPERTIES",
                "CREATE ROUTINE LOAD j ON t COLUMNS",
                "ALTER ROUTINE LOAD FOR j FROM KAFKA",
                "SELECT * FROM jobs",
                "SELECT * FROM FILES",
                "CREATE TABLE t",
                "anything",
            ]
        )
    )
    tail = draw(st.sampled_from(["", ";", " ON STREAMING", " WHERE a = 'b'", "; SHOW JOBS"]))
    return head + draw(lists(st.sampled_from(SECRET_KEYS))) + tail


@st.composite
def secret_statements(draw: st.DrawFn) -> str:
    """Draw a CREATE SECRET or ALTER SECRET."""
    head = draw(
        st.sampled_from(
            [
                "CREATE SECRET s",
                "create secret if not exists `s`",
                "ALTER SECRET S",
                "ALTER Secret",
            ]
        )
    )
    return head + draw(lists(st.sampled_from([*SECRET_KEYS, "anything"])))


@st.composite
def broken(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """Draw a statement with text removed or added outside of the secret."""
    text = draw(whole)
    at = text.index(CANARY)
    places = [m.start() for m in re.finditer(r"\b|\W", text) if not at < m.start() < at + 6]
    place = draw(st.sampled_from([p for p in places if p > at] or [len(text)]))
    removed = draw(st.integers(0, 3))
    return text[:place] + draw(st.sampled_from(WRONG)) + text[place + removed :]


any_statement = st.one_of(statements(), secret_statements())


@settings(deadline=None, max_examples=1000)
@given(text=any_statement | broken(any_statement))
def test_a_masked_statement_contains_no_secret(text: str) -> None:
    assert may_contain_secret(text)
    assert CANARY not in visible_part(text)


@settings(deadline=None, max_examples=1000)
@given(text=any_statement | broken(any_statement))
def test_an_error_message_contains_no_secret(text: str) -> None:
    assert CANARY not in refusal(text)


def refusal(text: str) -> str:
    """Return the whole text of the parser's error; empty if the script is valid."""
    try:
        parse_script(text)
    except UserError as error:
        return error.message + error.detail + error.hint
    return ""
