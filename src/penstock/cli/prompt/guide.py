"""Help of the prompt: every statement with an example, commands and keys."""

from typing import NamedTuple

from penstock.sql.parser import statement_heads

_COLUMN = 36


class Lesson(NamedTuple):
    """What a statement does, with an example."""

    meaning: str
    example: str


LESSON_BY_HEAD = {
    "CREATE TABLE": Lesson(
        "create a Delta table", "CREATE TABLE orders (id BIGINT, city STRING);"
    ),
    "CREATE JOB": Lesson(
        "load files into a table, each row exactly once",
        "CREATE JOB load_orders ON STREAMING DO INSERT INTO orders SELECT id, city\n"
        '  FROM FILES("uri" = "file:///data/in/*.json", "format" = "json");',
    ),
    "CREATE ROUTINE LOAD": Lesson(
        "load a stream into a table, each record exactly once",
        "CREATE ROUTINE LOAD load_clicks ON clicks COLUMNS(id, url), WHERE id > 0\n"
        '  FROM KINESIS("kinesis_stream" = "clicks", "aws.region" = "eu-west-1");',
    ),
    "CREATE SECRET": Lesson(
        "store credentials under a name",
        "CREATE SECRET lake (s3.access_key = '…', s3.secret_key = '…');",
    ),
    "ALTER JOB": Lesson(
        "change a paused job", 'ALTER JOB load_orders PROPERTIES("max_interval" = "30s");'
    ),
    "ALTER ROUTINE LOAD": Lesson(
        "change a paused routine load",
        'ALTER ROUTINE LOAD FOR load_clicks PROPERTIES("max_batch_interval" = "30");',
    ),
    "ALTER SECRET": Lesson("change credentials", "ALTER SECRET lake (s3.secret_key = '…');"),
    "PAUSE JOB": Lesson("stop loading", "PAUSE JOB load_orders;"),
    "RESUME JOB": Lesson("continue loading", "RESUME JOB load_orders;"),
    "PAUSE ROUTINE LOAD": Lesson("stop loading", "PAUSE ROUTINE LOAD FOR load_clicks;"),
    "PAUSE ALL ROUTINE LOAD": Lesson("stop all routine loads", "PAUSE ALL ROUTINE LOAD;"),
    "RESUME ROUTINE LOAD": Lesson("continue loading", "RESUME ROUTINE LOAD FOR load_clicks;"),
    "RESUME ALL ROUTINE LOAD": Lesson("continue all of them", "RESUME ALL ROUTINE LOAD;"),
    "STOP ROUTINE LOAD": Lesson(
        "end a routine load for good; its table stays", "STOP ROUTINE LOAD FOR load_clicks;"
    ),
    "DROP TABLE": Lesson("delete a table", "DROP TABLE orders;"),
    "DROP JOB": Lesson("delete a job; its table stays", "DROP JOB load_orders;"),
    "DROP SECRET": Lesson("delete credentials", "DROP SECRET lake;"),
    "EXPLAIN JOB": Lesson("how it loads, and what is next", "EXPLAIN JOB load_orders;"),
    "SHOW TABLES": Lesson("all tables", "SHOW TABLES;"),
    "SHOW JOBS": Lesson("all jobs, their states and counts", "SHOW JOBS;"),
    "SHOW SECRETS": Lesson("names of secrets, no values", "SHOW SECRETS;"),
    "SHOW CREATE TABLE": Lesson("the statement that creates it", "SHOW CREATE TABLE orders;"),
    "SHOW CREATE JOB": Lesson("the statement that creates it", "SHOW CREATE JOB load_orders;"),
    "SHOW EPOCHS": Lesson("what a job has committed", "SHOW EPOCHS FOR load_orders;"),
    "SHOW EVENTS": Lesson("what happened to a job", "SHOW EVENTS FOR load_orders;"),
    "SHOW ROUTINE LOAD": Lesson("all routine loads that have not ended", "SHOW ROUTINE LOAD;"),
    "SHOW ROUTINE LOAD TASK": Lesson(
        "what a routine load does now", "SHOW ROUTINE LOAD TASK FOR load_clicks;"
    ),
    "SHOW ALL ROUTINE LOAD": Lesson("also those that have ended", "SHOW ALL ROUTINE LOAD;"),
    "SHOW ALL CREATE ROUTINE LOAD": Lesson(
        "also for one that has ended", "SHOW ALL CREATE ROUTINE LOAD FOR load_clicks;"
    ),
    "SHOW CREATE ROUTINE LOAD": Lesson(
        "the statement that creates it", "SHOW CREATE ROUTINE LOAD FOR load_clicks;"
    ),
    "SHOW SHARDS": Lesson("how far each shard was read", "SHOW SHARDS FOR load_clicks;"),
    "DESCRIBE": Lesson("the columns of a table", "DESCRIBE orders;"),
    "DESCRIBE DETAIL": Lesson("where it is and how large", "DESCRIBE DETAIL orders;"),
    "SELECT": Lesson(
        "read tables; starts Spark", "SELECT city, count(*) FROM orders GROUP BY city;"
    ),
}

_COMMANDS = r"""
At the end of a statement
  ;                     run it
  \G                    run it, and print the result vertically
  \watch 2s             repeat it every 2 seconds, until Ctrl-C

Commands
  \?  help              show this page
  \watch 2s             repeat the last statement every 2 seconds
  \timing [on | off]    show how long statements take
  \e                    edit the last statement in $EDITOR
  \q  exit  quit        leave

Keys
  Tab                   complete
  Up, Down, Ctrl-R      earlier statements
  Ctrl-C                clear the line, or stop waiting
  Ctrl-D                leave
"""


def guide() -> str:
    """Return the help text."""
    lines = ["Statements, on one line or several, end with ;"]
    for head in statement_heads():
        lesson = LESSON_BY_HEAD[" ".join(head)]
        first, *more = [f"  {line}" for line in lesson.example.split("\n")]
        # The meaning of a long example is above it.
        if more or len(first) >= _COLUMN - 1:
            lines += [f"  -- {lesson.meaning}", first, *more]
        else:
            lines.append(f"{first:<{_COLUMN}}-- {lesson.meaning}")
    return "\n".join([*lines, _COMMANDS])
