"""What can be typed at the prompt: every statement with an example, commands and keys."""

from dataclasses import dataclass

from penstock.sql.parser import statement_heads

_COLUMN = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a statement does, and how it is written."""

    meaning: str
    example: str


def _lesson(meaning: str, example: str) -> Lesson:
    return Lesson(meaning=meaning, example=example)


LESSON_BY_HEAD = {
    "CREATE TABLE": _lesson(
        "make a Delta table", "CREATE TABLE orders (id BIGINT, city STRING);"
    ),
    "CREATE JOB": _lesson(
        "load files into a table, each row exactly once",
        "CREATE JOB load_orders ON STREAMING DO INSERT INTO orders SELECT id, city\n"
        '  FROM FILES("uri" = "file:///data/in/*.json", "format" = "json");',
    ),
    "CREATE ROUTINE LOAD": _lesson(
        "load a stream into a table, each record exactly once",
        "CREATE ROUTINE LOAD load_clicks ON clicks COLUMNS(id, url), WHERE id > 0\n"
        '  FROM KINESIS("kinesis_stream" = "clicks", "aws.region" = "eu-west-1");',
    ),
    "CREATE SECRET": _lesson(
        "keep credentials under a name",
        "CREATE SECRET lake (s3.access_key = '…', s3.secret_key = '…');",
    ),
    "ALTER JOB": _lesson(
        "change a paused job", 'ALTER JOB load_orders PROPERTIES("max_interval" = "30s");'
    ),
    "ALTER ROUTINE LOAD": _lesson(
        "change a paused routine load",
        'ALTER ROUTINE LOAD FOR load_clicks PROPERTIES("max_batch_interval" = "30");',
    ),
    "ALTER SECRET": _lesson("change credentials", "ALTER SECRET lake (s3.secret_key = '…');"),
    "PAUSE JOB": _lesson("stop loading", "PAUSE JOB load_orders;"),
    "RESUME JOB": _lesson("go on loading", "RESUME JOB load_orders;"),
    "PAUSE ROUTINE LOAD": _lesson("stop loading", "PAUSE ROUTINE LOAD FOR load_clicks;"),
    "PAUSE ALL ROUTINE LOAD": _lesson("stop loading streams", "PAUSE ALL ROUTINE LOAD;"),
    "RESUME ROUTINE LOAD": _lesson("go on loading", "RESUME ROUTINE LOAD FOR load_clicks;"),
    "RESUME ALL ROUTINE LOAD": _lesson("go on with all", "RESUME ALL ROUTINE LOAD;"),
    "STOP ROUTINE LOAD": _lesson(
        "end a routine load for ever; its table stays", "STOP ROUTINE LOAD FOR load_clicks;"
    ),
    "DROP TABLE": _lesson("remove a table", "DROP TABLE orders;"),
    "DROP JOB": _lesson("remove a job; its table stays", "DROP JOB load_orders;"),
    "DROP SECRET": _lesson("forget credentials", "DROP SECRET lake;"),
    "EXPLAIN JOB": _lesson("how it loads, and what is next", "EXPLAIN JOB load_orders;"),
    "SHOW TABLES": _lesson("all tables", "SHOW TABLES;"),
    "SHOW JOBS": _lesson("all jobs, their states and counts", "SHOW JOBS;"),
    "SHOW SECRETS": _lesson("names of secrets, no values", "SHOW SECRETS;"),
    "SHOW CREATE TABLE": _lesson("the statement that made it", "SHOW CREATE TABLE orders;"),
    "SHOW CREATE JOB": _lesson("the statement that made it", "SHOW CREATE JOB load_orders;"),
    "SHOW EPOCHS": _lesson("what a job has committed", "SHOW EPOCHS FOR load_orders;"),
    "SHOW EVENTS": _lesson("what happened to a job", "SHOW EVENTS FOR load_orders;"),
    "SHOW ROUTINE LOAD": _lesson("all routine loads that go on", "SHOW ROUTINE LOAD;"),
    "SHOW ROUTINE LOAD TASK": _lesson(
        "what a routine load does now", "SHOW ROUTINE LOAD TASK FOR load_clicks;"
    ),
    "SHOW ALL ROUTINE LOAD": _lesson("also those that have ended", "SHOW ALL ROUTINE LOAD;"),
    "SHOW ALL CREATE ROUTINE LOAD": _lesson(
        "also of one that has ended", "SHOW ALL CREATE ROUTINE LOAD FOR load_clicks;"
    ),
    "SHOW CREATE ROUTINE LOAD": _lesson(
        "the statement that made it", "SHOW CREATE ROUTINE LOAD FOR load_clicks;"
    ),
    "SHOW SHARDS": _lesson("how far each shard was read", "SHOW SHARDS FOR load_clicks;"),
    "DESCRIBE": _lesson("the columns of a table", "DESCRIBE orders;"),
    "DESCRIBE DETAIL": _lesson("where it is and how large", "DESCRIBE DETAIL orders;"),
    "SELECT": _lesson(
        "read tables; starts Spark", "SELECT city, count(*) FROM orders GROUP BY city;"
    ),
}

_COMMANDS = r"""
At the end of a statement
  ;                     run it
  \G                    run it, and print the result vertically
  \watch 2s             run it again every 2 seconds, until Ctrl-C

Commands
  \?  help              this page
  \watch 2s             watch the last statement
  \timing [on | off]    show how long statements take
  \e                    edit the last statement in $EDITOR
  \q  exit  quit        leave

Keys
  Tab                   complete
  Up, Down, Ctrl-R      what was typed before
  Ctrl-C                clear the line, or stop waiting
  Ctrl-D                leave
"""


def guide() -> str:
    """Write everything that can be typed."""
    lines = ["Statements, on one line or several, end with ;"]
    for head in statement_heads():
        lesson = LESSON_BY_HEAD.get(" ".join(head))
        if lesson is not None:
            lines += _example_lines(lesson)
    return "\n".join([*lines, _COMMANDS])


def _example_lines(lesson: Lesson) -> list[str]:
    """Write an example with its meaning behind it, or above where that is too long."""
    written = [f"  {line}" for line in lesson.example.split("\n")]
    if len(written) > 1 or len(written[0]) >= _COLUMN - 1:
        return [f"  -- {lesson.meaning}", *written]
    return [f"{written[0]:<{_COLUMN}}-- {lesson.meaning}"]
