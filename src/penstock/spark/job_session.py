"""Spark sessions for the SELECTs of jobs: check a SELECT, and run it epoch by epoch.

A job has one session for all its epochs. The frame (DataFrame) of a SELECT is cached too,
unless its plan may change from epoch to epoch. Small task texts are sent as a local property of
the Spark job. Thus a cached frame reads new tasks in every epoch. Large task texts are part of
the closures of a frame that is built for one epoch; pyspark broadcasts large closures.
"""

import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.arrow.types import data_type
from penstock.errors import Code, InvariantError, PenstockError, UserError
from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryRun, QueryText, output_name
from penstock.model.schema import Column, DataType, columns_sql
from penstock.spark.plan_check import check_plan
from penstock.spark.sql_errors import (
    convert_job_error,
    missing_relation,
    unqualified,
    with_location,
)
from penstock.spark.worker import (
    TASKS,
    Batches,
    ReadHalf,
    ReadLookup,
    WriteHalf,
    lookup_function,
    source_function,
    writer_function,
)

# A DataFrame or a SparkSession; pyspark has no types here.
Frame = Any
Session = Any
Selected = TypeVar("Selected")

# Every task of a Spark job receives all properties of the job, and therefore all task texts.
_PROPERTY_CHARACTERS_MAX = 2**18
# With one partition Spark plans no exchange, so the check would miss operators that need one.
_PARTITIONS_CHECKED = 2
_LOOKUPS_MAX = 50
_COMMON_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A SELECT must not read files by path, such as parquet.`/some/path`.
    "spark.sql.runSQLOnFiles": "false",
}


def open_session(root: Session, settings: Mapping[str, str]) -> Session:
    """Return a new session with these settings."""
    # Otherwise pyspark prints every error of a SELECT with its stack to the terminal.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = root.newSession()
    for key, value in {**_COMMON_SETTINGS, **settings}.items():
        session.conf.set(key, value)
    return session


def select_frame(session: Session, text: str) -> Frame:
    """Return the frame of a SELECT; raise Spark's error for any other statement."""
    session._jsparkSession.sessionState().sqlParser().parseQuery(text)  # noqa: SLF001
    return session.sql(text)


def select_known(
    text: str, *, select: Callable[[str], Selected], add: Callable[[str], str], tables_max: int
) -> tuple[Selected, str]:
    """Run ``select``, and register tables with ``add`` until Spark finds all of them.

    ``add`` registers a table and returns the name of its view. Return the result of ``select``,
    and the text with table names replaced by view names.
    """
    added: set[str] = set()
    while True:
        try:
            return select(text), text
        except Exception as error:
            name = missing_relation(error)
            if name is None or name in added:
                raise
            if len(added) >= tables_max:
                raise UserError(
                    f"a SELECT can use at most {tables_max} tables", code=Code.TYPE_ERR
                ) from error
            try:
                view = add(name)
            except UserError as unknown:
                raise with_location(unknown, error, text) from error
            added.add(name)
            text = unqualified(text, error, view)


def name_view(frame: Frame, view: str) -> None:
    """Register a frame as a view of its session."""
    quoted = view.replace("`", "``")
    frame.createOrReplaceTempView(f"`{quoted}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """The functions that run inside tasks; workers import them by name."""

    read: ReadHalf
    write: WriteHalf
    read_lookup: ReadLookup


def _settings(query: QueryText) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": query.time_zone,
        "spark.sql.ansi.enabled": str(query.strict).lower(),
        # Adaptive execution may remove the reader at run time if a joined table is empty.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # Without code generation, a join with an empty table would not read the source.
        "spark.sql.codegen.maxFields": "100000",
    }


def register_functions(session: Session, module_name: str) -> None:
    """Register the user-defined functions of a module; an empty name means no module."""
    if not module_name:
        return
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f'module "{module_name}" of "session.python_udfs" cannot be imported: {error}',
            code=Code.OPTION_ERR,
            hint="Install the module for Penstock and Spark's workers, or set PYTHONPATH.",
        ) from error
    functions = {
        name: value
        for name, value in vars(module).items()
        if hasattr(value, "returnType") and hasattr(value, "evalType")
    }
    if not functions:
        raise UserError(
            f'module "{module_name}" of "session.python_udfs" has no user-defined function',
            code=Code.OPTION_ERR,
            hint="Define functions with pyspark.sql.functions.udf at the top of the module.",
        )
    for name, function in functions.items():
        session.udf.register(name, function)


class JobSession:
    """The Spark session of one job, with a cache of frames."""

    def __init__(self, root: Session, query: QueryText, *, halves: Halves) -> None:
        self.query = query
        self._halves = halves
        self._session = open_session(root, _settings(query))
        register_functions(self._session, query.python_udfs)
        self._reader_by_tasks: dict[int, Frame] = {}
        self._frame_by_tasks: dict[int, Frame] = {}
        self._lookups: tuple[Lookup, ...] = ()

    def run(self, run: QueryRun, tasks: Sequence[str]) -> list[str]:
        """Run the SELECT over the tasks and return the results of their writing halves."""
        if run.lookups != self._lookups:
            for lookup in run.lookups:
                self.name_lookup(lookup)
            self._lookups = run.lookups
        small = sum(map(len, tasks)) <= _PROPERTY_CHARACTERS_MAX
        # Spark sends the property with the next Spark jobs of this thread.
        text = json.dumps(list(tasks)) if small else None
        self._session.sparkContext.setLocalProperty(TASKS, text)
        if small:
            frame = self._small_frame(run, len(tasks))
        else:
            frame = self._frame(run, self.reader(len(tasks), tuple(tasks)), tuple(tasks))
        return [str(row[0]) for row in frame.collect()]

    def _small_frame(self, run: QueryRun, count: int) -> Frame:
        if count in self._frame_by_tasks:
            return self._frame_by_tasks[count]
        if count not in self._reader_by_tasks:
            self._reader_by_tasks[count] = self.reader(count)
        frame = self._frame(run, self._reader_by_tasks[count])
        if run.reusable:
            self._frame_by_tasks[count] = frame
        return frame

    def _frame(
        self, run: QueryRun, reader: Frame, tasks: tuple[str, ...] | None = None
    ) -> Frame:
        """Return the frame that reads, selects and writes.

        Raise UserError if the plan is not row-wise.
        """
        name_view(reader, self.query.view)
        select, _ = self.select(self.query.text)
        frame = self.writer(select, tasks)
        findings = check_plan(frame, text=self.query.text)
        unread = set(findings.needed) - set(run.needed)
        if unread:
            raise InvariantError(
                f"the SELECT uses columns that the job does not read: "
                f"{', '.join(sorted(unread))}",
                hint="ALTER the job with the same INSERT to analyse the SELECT again.",
            )
        return frame

    def reader(self, count: int, tasks: tuple[str, ...] | None = None) -> Frame:
        """Return a frame of the source with one partition for each task."""
        read = source_function(self._halves.read, tasks)
        return self._mapped(read, self.query.columns, partitions=count)

    def name_lookup(self, lookup: Lookup) -> None:
        """Register a joined table as a view that Spark broadcasts."""
        read = lookup_function(self._halves.read_lookup, lookup)
        frame = self._mapped(read, lookup.columns, partitions=1)
        name_view(frame.hint("broadcast"), lookup.table.name)

    def _mapped(
        self,
        read: Callable[[Batches], Batches],
        columns: tuple[Column, ...],
        *,
        partitions: int,
    ) -> Frame:
        ddl = columns_sql(tuple(Column(name=c.name, type=c.type) for c in columns))
        return self._session.range(0, partitions, 1, partitions).mapInArrow(read, ddl)

    def select(self, text: str) -> tuple[Frame, tuple[str, ...]]:
        """Return the frame of a SELECT with numbered columns, and their original names."""
        frame = select_frame(self._session, text)
        names = tuple(frame.columns)
        return frame.toDF(*(output_name(at) for at in range(len(names)))), names

    def writer(self, select: Frame, tasks: tuple[str, ...] | None = None) -> Frame:
        """Return the frame that writes the rows of a SELECT."""
        return select.mapInArrow(writer_function(self._halves.write, tasks), "result STRING")


def analyse(
    root: Session, query: QueryText, *, find_lookup: Callable[[str], Lookup], log_file: object
) -> SparkQuery:
    """Check a SELECT and return its properties; ``find_lookup`` finds joined tables."""
    halves = Halves(read=_never, write=_never, read_lookup=_never)
    session = JobSession(root, query, halves=halves)
    name_view(session.reader(_PARTITIONS_CHECKED), query.view)
    lookups: list[Lookup] = []

    def add(name: str) -> str:
        lookups.append(find_lookup(name))
        session.name_lookup(lookups[-1])
        return lookups[-1].table.name

    try:
        (frame, names), text = select_known(
            query.text, select=session.select, add=add, tables_max=_LOOKUPS_MAX
        )
    except PenstockError:
        raise
    except Exception as error:
        known = convert_job_error(error, log_file=log_file)
        if not isinstance(known, UserError):
            known = UserError(known.message, code=Code.TYPE_ERR)
        raise with_location(known, error, query.text) from error
    try:
        findings = check_plan(session.writer(frame), text=text)
    except PenstockError:
        raise
    except Exception as error:
        raise convert_job_error(error, log_file=log_file) from error
    return SparkQuery(
        text=text,
        view=query.view,
        view_columns=query.columns,
        needed=findings.needed,
        outputs=outputs_of(frame, names),
        lookups=tuple(lookup.joined_table for lookup in lookups),
        operators=findings.operators,
        row_wise=findings.row_wise,
        reusable=findings.reusable,
    )


def _never(*_: object) -> Any:  # noqa: ANN401 - Replaces functions of several types.
    raise InvariantError("a plan was run that must only be checked")


def outputs_of(frame: Frame, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the outputs of a SELECT as columns; raise UserError for other types."""
    outputs: list[Column] = []
    for name, field in zip(names, frame.schema.fields, strict=True):
        kind = column_type(field.dataType)
        if kind is None:
            raise UserError(
                f'output "{name}" of the SELECT is {field.dataType.simpleString()}, '
                "which is not a column type",
                code=Code.TYPE_ERR,
                hint="Convert the output, for example with CAST(… AS STRING).",
            )
        outputs.append(Column(name=name, type=kind))
    return tuple(outputs)


def column_type(kind: Any) -> DataType | None:  # noqa: ANN401 - A type of Spark.
    """Convert a Spark type to a column type; return None if there is none."""
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        # A bare NULL becomes STRING: it fits every column.
        return data_type(to_arrow_type(kind, timezone="UTC"))
    except Exception:  # noqa: BLE001 - Spark and Penstock raise different errors.
        return None
