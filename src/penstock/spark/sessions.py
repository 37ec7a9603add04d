"""Sessions of Spark in which a SELECT runs, and nothing but a SELECT."""

import logging
from collections.abc import Mapping
from typing import Any

# What holds for every SELECT, whoever asks for it.
_COMMON = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Tables have names; parquet.`/some/path` is none.
    "spark.sql.runSQLOnFiles": "false",
}


def open_session(root: Any, settings: Mapping[str, str]) -> Any:  # noqa: ANN401 - SparkSessions.
    """Branch a session off, set up as wanted."""
    # pyspark writes every error of a SELECT to the terminal, stack included.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = root.newSession()
    for key, value in {**_COMMON, **settings}.items():
        session.conf.set(key, value)
    return session


def select_frame(session: Any, text: str) -> Any:  # noqa: ANN401 - As pyspark answers.
    """Answer the frame of a SELECT; whatever is no query is refused before it is run."""
    session._jsparkSession.sessionState().sqlParser().parseQuery(text)  # noqa: SLF001
    return session.sql(text)


def name_view(frame: Any, view: str) -> None:  # noqa: ANN401
    """Let the SELECTs of the frame's session find it by a name."""
    quoted = view.replace("`", "``")
    frame.createOrReplaceTempView(f"`{quoted}`")
