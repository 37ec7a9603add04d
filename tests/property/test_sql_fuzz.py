"""Any text is parsed to statements or refused with an error that has a position."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob, ParsedStatement, RoutineBody, Statement

VALID = (
    "CREATE TABLE IF NOT EXISTS default.t (a BIGINT NOT NULL COMMENT 'x', b DECIMAL(10, 2), "
    "c STRUCT<d: ARRAY<MAP<STRING, INT>>>) USING DELTA COMMENT 'c' LOCATION '/x'",
    'CREATE JOB j PROPERTIES("k" = "v", "n" = 10) ON STREAMING COMMENT \'c\' DO INSERT INTO t '
    "(a, b) SELECT f.a, f.b.c AS d FROM FILES('path' = '/in/*', \"format\" = json) AS f",
    "ALTER JOB `j j` PROPERTIES('k' = -1)",
    "PAUSE JOB WHERE jobname = 'j'; RESUME JOB j; DROP JOB IF EXISTS WHERE name = \"j\"",
    "CREATE SECRET IF NOT EXISTS s (s3.access_key = 'x', \"k\" = 1); DROP SECRET IF EXISTS `s`",
    "ALTER SECRET 's' (k = v); SHOW SECRETS; ALTER JOB j PROPERTIES('k' = SECRET 's')",
    "SHOW JOBS; SHOW CREATE JOB FOR j; SHOW EPOCHS FOR j; DESCRIBE DETAIL t; SHOW TABLES",
    "CREATE ROUTINE LOAD default.j ON t WITH APPEND COLUMNS TERMINATED BY ',', "
    "COLUMNS(a, b = CASE WHEN a IS DISTINCT FROM c[0] THEN f(a, 1) END), "
    "PRECEDING FILTER a > 1, WHERE b.from PROPERTIES('k' = 'v') "
    "FROM KINESIS('k' = SECRET s) COMMENT 'c'",
    "ALTER ROUTINE LOAD FOR j COLUMNS(a), WHERE (a) FROM KAFKA('k' = 1); SHOW SHARDS FOR j",
    "PAUSE ROUTINE LOAD FOR j; RESUME ALL ROUTINE LOAD; STOP ROUTINE LOAD FOR default.j",
    "SHOW ALL ROUTINE LOAD LIKE 'x%'; SHOW ROUTINE LOAD TASK WHERE jobname = 'j'; "
    "SHOW ALL CREATE ROUTINE LOAD FOR j; SHOW ROUTINE LOAD FOR j",
)
PIECES = sorted(
    {piece for text in VALID for piece in re.findall(r"\w+|'[^']*'|\S", text)}
    | {
        "WHERE",
        "UNION",
        "CASE",
        "(",
        ")",
        "<",
        ">",
        ">>",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "/*+",
    }
    | {"{#", "#}", "\n", "\r", "\\", "\0", "\ufeff", "\ud83d", "😀", "1L", "1.5e", "x'", "r'"}
)

anything = st.text(st.characters(exclude_categories=()), max_size=60)
soup = st.lists(st.sampled_from(PIECES), max_size=40).flatmap(
    lambda pieces: st.sampled_from(["", " "]).map(lambda space: space.join(pieces))
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a valid statement with a few parts replaced."""
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(PIECES) | anything) + text[end:]
    return text


@settings(
    max_examples=10_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(text=st.one_of(anything, soup, mutated()))
def test_any_text_is_parsed_or_refused_with_a_position(text: str) -> None:
    found = parse_or_error(text)

    if isinstance(found, UserError):
        assert re.search(r"Line \d+, column \d+\.\Z", found.detail)
    else:
        assert all(one.text in text for one in found)
        assert all(reparsed(one.statement) == one.statement for one in found)


def reparsed(statement: Statement) -> Statement:
    """Format and parse a routine load; return other statements unchanged."""
    if not isinstance(statement, CreateJob) or not isinstance(statement.body, RoutineBody):
        return statement
    (parsed,) = parse_script(format_statement(statement))
    return parsed.statement


def parse_or_error(text: str) -> tuple[ParsedStatement, ...] | UserError:
    """Return the parsed script or its UserError; any other error fails the test."""
    try:
        return parse_script(text)
    except UserError as error:
        return error
