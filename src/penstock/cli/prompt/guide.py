"""The help text of the prompt: statements with examples, commands and keys."""

from typing import NamedTuple

from penstock.sql.parser import statement_heads

_COLUMN = 36


class HelpEntry(NamedTuple):
    """The meaning of a statement, with an example."""

    meaning: str
    example: str


HELP_BY_HEAD = {
    "CREATE TABLE": HelpEntry(
        "create a Delta table", "CREATE TABLE orders (id BIGINT, city STRING);"
    ),
    "CREATE JOB": HelpEntry(
        "load files into a table, each row exactly once",
        "CREATE JOB load_orders ON STREAMING DO INSERT INTO orders SELECT id, city\n"
        '  FROM FILES("uri" = "file:///data/in/*.json", "format" = "json");',
    ),
    "CREATE ROUTINE LOAD": HelpEntry(
        "load a stream into a table, each record exactly once",
        "CREATE ROUTINE LOAD load_clicks ON clicks COLUMNS(id, url), WHERE id > 0\n"
        '  FROM KINESIS("kinesis_stream" = "clicks", "aws.region" = "eu-west-1");',
    ),
    "CREATE STREAMING TABLE": HelpEntry(
        "create a table that a query over other tables keeps up to date",
        "CREATE STREAMING TABLE per_city AS\n"
        "  SELECT city, count(*) AS orders FROM STREAM orders GROUP BY city;",
    ),
    "CREATE OR REFRESH STREAMING TABLE": HelpEntry(
        "create a streaming table; if it exists, request an epoch",
        "CREATE OR REFRESH STREAMING TABLE per_hour AS\n"
        "  SELECT window(at, '1 hour').start AS hour, count(*) AS orders\n"
        "  FROM STREAM orders WATERMARK at DELAY OF INTERVAL 5 MINUTES\n"
        "  GROUP BY window(at, '1 hour');",
    ),
    "CREATE FLOW": HelpEntry(
        "add the rows of a second query to a streaming table",
        "CREATE FLOW add_web AS INSERT INTO large_orders BY NAME\n"
        "  SELECT id, amount FROM STREAM web_orders WHERE amount > 100;",
    ),
    "CREATE SECRET": HelpEntry(
        "store credentials under a name",
        "CREATE SECRET lake (s3.access_key = '…', s3.secret_key = '…');",
    ),
    "ALTER TABLE": HelpEntry(
        "set the event time of a table for streaming tables",
        "ALTER TABLE orders SET WATERMARK FOR at AS at - INTERVAL 5 MINUTES;",
    ),
    "ALTER JOB": HelpEntry(
        "change a paused job", 'ALTER JOB load_orders PROPERTIES("max_interval" = "30s");'
    ),
    "ALTER ROUTINE LOAD": HelpEntry(
        "change a paused routine load",
        'ALTER ROUTINE LOAD FOR load_clicks PROPERTIES("max_batch_interval" = "30");',
    ),
    "ALTER STREAMING TABLE": HelpEntry(
        "advance the watermark, or change options of a paused streaming table",
        "ALTER STREAMING TABLE per_hour ADVANCE WATERMARK TO FINAL;",
    ),
    "ALTER FLOW": HelpEntry(
        "advance the watermark, or change options of a paused flow",
        "ALTER FLOW add_web SET ('checkpoint.interval' = '1s');",
    ),
    "ALTER SECRET": HelpEntry("change credentials", "ALTER SECRET lake (s3.secret_key = '…');"),
    "PAUSE JOB": HelpEntry("stop loading until RESUME", "PAUSE JOB load_orders;"),
    "RESUME JOB": HelpEntry("continue loading", "RESUME JOB load_orders;"),
    "PAUSE ROUTINE LOAD": HelpEntry(
        "stop loading until RESUME", "PAUSE ROUTINE LOAD FOR load_clicks;"
    ),
    "PAUSE ALL ROUTINE LOAD": HelpEntry("pause all routine loads", "PAUSE ALL ROUTINE LOAD;"),
    "PAUSE STREAMING TABLE": HelpEntry(
        "stop updates until RESUME", "PAUSE STREAMING TABLE per_city;"
    ),
    "PAUSE FLOW": HelpEntry("stop a flow until RESUME", "PAUSE FLOW add_web;"),
    "RESUME ROUTINE LOAD": HelpEntry(
        "continue loading", "RESUME ROUTINE LOAD FOR load_clicks;"
    ),
    "RESUME ALL ROUTINE LOAD": HelpEntry(
        "resume all routine loads", "RESUME ALL ROUTINE LOAD;"
    ),
    "RESUME STREAMING TABLE": HelpEntry("continue updates", "RESUME STREAMING TABLE per_city;"),
    "RESUME FLOW": HelpEntry("continue a flow", "RESUME FLOW add_web;"),
    "STOP ROUTINE LOAD": HelpEntry(
        "end a routine load permanently; its table stays", "STOP ROUTINE LOAD FOR load_clicks;"
    ),
    "DROP TABLE": HelpEntry("delete a table", "DROP TABLE orders;"),
    "DROP JOB": HelpEntry("delete a job; its table stays", "DROP JOB load_orders;"),
    "DROP STREAMING TABLE": HelpEntry(
        "delete the table, its flows and its rows",
        "DROP STREAMING TABLE per_city;",
    ),
    "DROP FLOW": HelpEntry("delete a flow; its rows stay", "DROP FLOW add_web;"),
    "DROP SECRET": HelpEntry("delete credentials", "DROP SECRET lake;"),
    "REFRESH STREAMING TABLE": HelpEntry(
        "request an epoch now", "REFRESH STREAMING TABLE per_city;"
    ),
    "REFRESH FLOW": HelpEntry("request an epoch now", "REFRESH FLOW add_web;"),
    "EXPLAIN JOB": HelpEntry(
        "show how a job loads, and its next epoch", "EXPLAIN JOB load_orders;"
    ),
    "EXPLAIN STREAMING TABLE": HelpEntry(
        "show the operators of a query, and what its state keeps",
        "EXPLAIN STREAMING TABLE per_city;",
    ),
    "SHOW TABLES": HelpEntry("list all tables", "SHOW TABLES;"),
    "SHOW JOBS": HelpEntry("list all jobs, their states and counts", "SHOW JOBS;"),
    "SHOW SECRETS": HelpEntry("list the names and keys of secrets", "SHOW SECRETS;"),
    "SHOW CREATE TABLE": HelpEntry(
        "show the CREATE statement of a table", "SHOW CREATE TABLE orders;"
    ),
    "SHOW CREATE JOB": HelpEntry(
        "show the CREATE statement of a job", "SHOW CREATE JOB load_orders;"
    ),
    "SHOW CREATE STREAMING TABLE": HelpEntry(
        "show the CREATE statement of a streaming table",
        "SHOW CREATE STREAMING TABLE per_city;",
    ),
    "SHOW CREATE FLOW": HelpEntry(
        "show the CREATE statement of a flow", "SHOW CREATE FLOW add_web;"
    ),
    "SHOW BACKLOG": HelpEntry(
        "show what jobs still have to read", "SHOW BACKLOG FOR load_orders;"
    ),
    "SHOW EPOCHS": HelpEntry("show the commits of a job", "SHOW EPOCHS FOR load_orders;"),
    "SHOW EVENTS": HelpEntry("show the history of a job", "SHOW EVENTS FOR load_orders;"),
    "SHOW ROUTINE LOAD": HelpEntry(
        "list routine loads that are not stopped", "SHOW ROUTINE LOAD;"
    ),
    "SHOW ROUTINE LOAD TASK": HelpEntry(
        "show the current task of a routine load", "SHOW ROUTINE LOAD TASK FOR load_clicks;"
    ),
    "SHOW ALL ROUTINE LOAD": HelpEntry(
        "list routine loads, also stopped ones", "SHOW ALL ROUTINE LOAD;"
    ),
    "SHOW ALL CREATE ROUTINE LOAD": HelpEntry(
        "show the CREATE statement of a load, even if it is stopped",
        "SHOW ALL CREATE ROUTINE LOAD FOR load_clicks;",
    ),
    "SHOW CREATE ROUTINE LOAD": HelpEntry(
        "show the CREATE statement of a routine load",
        "SHOW CREATE ROUTINE LOAD FOR load_clicks;",
    ),
    "SHOW SHARDS": HelpEntry(
        "show the position and lag of each shard", "SHOW SHARDS FOR load_clicks;"
    ),
    "SHOW STREAMING TABLES": HelpEntry(
        "list streaming tables and their lag", "SHOW STREAMING TABLES;"
    ),
    "SHOW CHECKPOINTS": HelpEntry(
        "show the epochs of a streaming table", "SHOW CHECKPOINTS FOR per_city;"
    ),
    "DESCRIBE": HelpEntry("show the columns of a table", "DESCRIBE orders;"),
    "DESCRIBE DETAIL": HelpEntry(
        "show the location and size of a table", "DESCRIBE DETAIL orders;"
    ),
    "SELECT": HelpEntry(
        "query tables; starts Spark", "SELECT city, count(*) FROM orders GROUP BY city;"
    ),
}

_COMMANDS = r"""
At the end of a statement
  ;                     run the statement
  \G                    run it and print the result vertically
  \watch 2s             run it every 2 seconds until Ctrl-C

Commands
  \?  help              show this page
  \watch 2s             repeat the last statement every 2 seconds
  \timing [on | off]    show the durations of statements
  \e                    edit the last statement in $EDITOR
  \q  exit  quit        quit the prompt

Keys
  Tab                   complete the word
  Up, Down, Ctrl-R      recall or search earlier statements
  Ctrl-C                clear the input, or stop waiting for a statement
  Ctrl-D                quit the prompt
"""


def guide() -> str:
    """Return the help text."""
    lines = ["Statements end with ; and can span several lines."]
    for head in statement_heads():
        entry = HELP_BY_HEAD[" ".join(head)]
        first, *more = [f"  {line}" for line in entry.example.split("\n")]
        # The meaning of a long example is on the line before the example.
        if more or len(first) >= _COLUMN - 1:
            lines += [f"  -- {entry.meaning}", first, *more]
        else:
            lines.append(f"{first:<{_COLUMN}}-- {entry.meaning}")
    return "\n".join([*lines, _COMMANDS])
