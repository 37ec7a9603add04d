"""A Spark session for one SELECT: its source, lookups and functions."""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import Code, UserError
from penstock.model.query import QueryText, output_name
from penstock.model.schema import Column, columns_sql

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


Batches = Iterator[pa.RecordBatch]
Frame = Any


class QuerySession:
    """One ``newSession`` of Spark, set up as the job wants it."""

    def __init__(self, root: Any, query: QueryText) -> None:  # noqa: ANN401 - A SparkSession.
        self._session = open_session(root, _settings(query))
        _register_functions(self._session, query.python_udfs)

    def reader(
        self, columns: tuple[Column, ...], read: Callable[[Batches], Batches], *, tasks: int
    ) -> Frame:
        """Answer a frame of as many parts as tasks, each made by the function."""
        ddl = columns_sql(tuple(_nullable(column) for column in columns))
        return self._session.range(0, tasks, 1, tasks).mapInArrow(read, ddl)

    def select(self, text: str) -> tuple[Frame, tuple[str, ...]]:
        """Answer the frame of a SELECT, its columns renamed, and how they were called."""
        frame = select_frame(self._session, text)
        names = tuple(frame.columns)
        return frame.toDF(*(output_name(at) for at in range(len(names)))), names


def _settings(query: QueryText) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": query.time_zone,
        "spark.sql.ansi.enabled": str(query.strict).lower(),
        # Adaptive execution may drop the reader at run time, when a joined table is empty.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # Interpreted, a join with an empty table would not look at the source at all.
        "spark.sql.codegen.maxFields": "100000",
    }


def _nullable(column: Column) -> Column:
    return Column(name=column.name, type=column.type)


def _register_functions(session: Any, module_name: str) -> None:  # noqa: ANN401
    if not module_name:
        return
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f'module "{module_name}" of "session.python_udfs" cannot be imported: {error}',
            code=Code.OPTION_ERR,
            hint="Install it where Penstock and Spark's workers run, or set PYTHONPATH.",
        ) from error
    functions = {
        name: value
        for name, value in vars(module).items()
        if hasattr(value, "returnType") and hasattr(value, "evalType")
    }
    if not functions:
        raise UserError(
            f'module "{module_name}" of "session.python_udfs" has no function',
            code=Code.OPTION_ERR,
            hint="Make functions with pyspark.sql.functions.udf at the top of the module.",
        )
    for name, function in functions.items():
        session.udf.register(name, function)
