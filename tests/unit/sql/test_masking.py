"""What is left of statements when their secrets are taken out."""

import pytest

from penstock.sql.masking import masked

SECRETS_OUT = [
    ("CREATE SECRET s (a = 'x', b.c=1)", "CREATE SECRET s (a = '***', b.c='***')"),
    ("ALTER SECRET s ('a'=\"x\"); SHOW JOBS", "ALTER SECRET s ('a'='***'); SHOW JOBS"),
    ("CREATE SECRET s (a = 'env:A', b = 'x')", "CREATE SECRET s (a = 'env:A', b = '***')"),
    ("CREATE SECRET (TYPE s3, SECRET 'x')", "CREATE SECRET ('***', '***')"),
    ("CREATE OR REPLACE SECRET s (a = x)", "CREATE OR REPLACE SECRET s (a = '***')"),
    ("create sekret s (a = 'x')", "create sekret s (a = '***')"),
    ("CREATE SECRET s (a = p,q;r)t", "CREATE SECRET s (a = '***','***''***')'***'"),
    ("FILES('s3.secret_key' = 'x')", "FILES('s3.secret_key' = '***')"),
    ("FILES('S3.Secret_Key'='x', 'a'='b')", "FILES('S3.Secret_Key'='***', 'a'='b')"),
    ("FILES('password' = p q, r)", "FILES('password' = '***')"),
    ("FILES('password' = p)q)", "FILES('password' = '***')"),
    ("FILES('password' 'x')", "FILES('password' '***')"),
    ("FILES(N'password' = 'x')", "FILES(N'password' = '***')"),
    (r"FILES('pass\u0077ord' = 'x')", r"FILES('pass\u0077ord' = '***')"),
    ("FILES(`s3`.secret_key = 'x')", "FILES(`s3`.secret_key = '***')"),
    ("WHERE token = 'x' AND a = 'b'", "WHERE token = '***' AND a = 'b'"),
    ("WHERE token = 'x' || lower ('y') AND a", "WHERE token = '***' AND a"),
    ("SET PASSWORD 'x'", "SET PASSWORD '***'"),
    ("FILES('token' = /* x */ 'y') -- z", "FILES('token' = '***') "),
    ("FILES('token' = /* x */ )", "FILES('token' = )"),
    ("-- 'token' = 'x'\nSHOW JOBS", "\nSHOW JOBS"),
    ("SELECT /*+ token=x */ a", "SELECT '***' a"),
    ("FILES('token' = 'x", ""),
    (r"FILES('t\u006fken' = 'x", ""),
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
]


@pytest.mark.parametrize(("text", "expected"), SECRETS_OUT)
def test_secret_values_are_taken_out(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize("text", NO_SECRETS)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert masked(text) == text
