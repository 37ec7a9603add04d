"""A session of Spark for one SELECT: its source, the tables it joins with, its functions."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import Code, UserError
from penstock.model.query import QueryText, output_name
from penstock.model.schema import Column, columns_sql
from penstock.spark.sessions import open_session, select_frame

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
