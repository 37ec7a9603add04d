import pytest

from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob, CreateTable

TABLE = """CREATE TABLE IF NOT EXISTS `my orders` (
  Id BIGINT NOT NULL COMMENT 'it''s',
  tags ARRAY<STRING>
)
USING DELTA
COMMENT 'all orders'
LOCATION '/data/orders'"""

JOB = """CREATE JOB `load-orders`
PROPERTIES (
  'max_interval' = '10',
  'note' = 'a "b"'
)
ON STREAMING
COMMENT 'every order'
DO
INSERT INTO orders (Id, city)
SELECT id, /* kept */ customer.city FROM FILES(
  'path' = '/in/*.json',
  'format' = 'json'
) AS f"""

SHORT_JOB = """CREATE JOB j
ON STREAMING
DO
INSERT INTO t
SELECT * FROM S3()"""


@pytest.mark.parametrize("text", [TABLE, JOB, SHORT_JOB])
def test_a_formatted_statement_does_not_change_when_formatted_again(text: str) -> None:
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateTable | CreateJob)

    assert format_statement(parsed.statement) == text


def test_only_the_call_is_formatted_in_a_select() -> None:
    (parsed,) = parse_script(
        "create job j on streaming do insert into T select  A -- why\n from files ( 'k' = 1 ) f"
    )
    assert isinstance(parsed.statement, CreateJob)

    written = format_statement(parsed.statement)

    assert written.endswith("INSERT INTO t\nselect  A -- why\n from FILES(\n  'k' = '1'\n) f")
