"""The first place in a statement that may show a secret."""

import pytest

from penstock.sql.masking import may_contain_secret, visible_part

# The text after ¦ is hidden.
SECRETS = [
    "CREATE SECRET¦ s (a = 'x', b.c=1)",
    "SHOW JOBS; ALTER SECRET¦ s ('a'=\"x\"); SHOW JOBS",
    "CREATE SECRET¦ (TYPE s3, SECRET 'x')",
    "CREATE OR REPLACE SECRET¦ s (a = x)",
    "create sekret¦ s (a = 'x')",
    "CREATE SECRET¦ s (a = p,q;r)t",
    "FILES('s3.secret_key'¦ = 'x')",
    "FILES('a'='b',\n'S3.Secret_Key'¦='x')",
    "FILES('a' = SECRET 's', 'token'¦ = SECRET 's' x)",
    "FILES('password'¦ = p q, r)",
    "FILES('password'¦ = , r)",
    "FILES('password'¦ 'x')",
    "FILES('password'¦ x)",
    "FILES(N'password'¦ = 'x')",
    r"FILES('pass\u0077ord'¦ = 'x')",
    "FILES(`s3`.secret_key¦ = 'x')",
    "FILES('s3.endpoint' =¦ 'https://user:x@host/')",
    "WHERE token¦ = 'x' AND a = 'b'",
    "SET PASSWORD¦ 'x'",
    "FILES('token'¦ = /* x */ 'y') -- z",
    "FILES('token'¦ /* x */ =",
    "¦-- 'token' = 'x'\nSHOW JOBS",
    "SHOW JOBS¦ -- 'token' = 'x'",
    "SELECT¦ /*+ token=x */ a",
    "¦FILES('token' = 'x",
    r"¦FILES('t\u006fken' = 'x",
    "¦CREATE SECRET s (a = 'x",
]
NO_SECRETS = [
    "",
    ";",
    "CREATE",
    "CREATE SECRET",
    "SHOW SECRETS LIKE 'x'",
    "DROP SECRET IF EXISTS s",
    "CREATE TABLE secrets (password STRING COMMENT 'a token', id INT)",
    "FILES('s3.secret_key' = SECRET 's', 'token' = SECRET s, 'a' = 'b')",
    "FILES('s3.secret_key' = 'secret:s', 'token' = 'env:T', 'password' = 'file:/p')",
    "SELECT token, a FROM t WHERE b = 'token' AND c = 'd'",
    "SELECT a /* of all */ FROM t -- to be seen",
    "SELECT 'not closed",
    "SELECT \ud83d",
    "\ufeffSHOW JOBS",
]


@pytest.mark.parametrize("text", SECRETS)
def test_everything_from_the_first_secret_on_is_hidden(text: str) -> None:
    visible, _, hidden = text.partition("¦")

    assert visible_part(visible + hidden) == visible
    assert may_contain_secret(visible + hidden)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_a_statement_without_secrets_is_visible(text: str) -> None:
    assert visible_part(text) == text
    assert not may_contain_secret(text)
