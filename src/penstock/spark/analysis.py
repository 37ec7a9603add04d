"""Find out at CREATE what Spark makes of a SELECT: its columns, and whether it may run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import Code, PenstockError, UserError
from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText
from penstock.model.schema import Column, Primitive
from penstock.spark.plan_check import PlanFindings, check_plan
from penstock.spark.query_session import QuerySession
from penstock.spark.sessions import name_view
from penstock.spark.sql_errors import explained, located, missing_relation, unqualified
from penstock.storage.arrow_types import data_type

# With one part Spark plans no exchange, and what needs one would pass unseen.
_PARTS = 2
_LOOKUPS_MAX = 50

FindLookup = Callable[[str], Lookup]


def analyse(
    root: Any,  # noqa: ANN401 - A SparkSession.
    query: QueryText,
    *,
    find_lookup: FindLookup,
    log_file: object,
) -> SparkQuery:
    """Answer what is known of the SELECT; ``find_lookup`` finds the tables it joins with."""
    session = QuerySession(root, query)
    name_view(session.reader(query.columns, read_source, tasks=_PARTS), query.view)
    lookups: dict[str, Lookup] = {}
    for _ in range(_LOOKUPS_MAX):
        try:
            frame, names = session.select(query.text)
            break
        except Exception as error:
            name = missing_relation(error)
            if name is None or name in lookups:
                raise _located(error, query, log_file=log_file) from error
            lookup = _found(name, error, query, find=find_lookup)
            lookups[name] = lookup
            text = unqualified(query.text, error, lookup.table.name)
            query = replace(query, text=text)
        view = session.reader(lookup.columns, read_lookup, tasks=1).hint("broadcast")
        name_view(view, lookup.table.name)
    else:
        raise UserError(f"a SELECT may join with {_LOOKUPS_MAX} tables", code=Code.TYPE_ERR)
    findings = _checked(frame, query, log_file=log_file)
    return SparkQuery(
        text=query.text,
        view=query.view,
        view_columns=query.columns,
        needed=findings.needed,
        outputs=_outputs(frame, names),
        lookups=tuple(lookup.table for lookup in lookups.values()),
        operators=findings.operators,
        row_wise=findings.row_wise,
        reusable=findings.reusable,
    )


def _found(name: str, error: Exception, query: QueryText, *, find: FindLookup) -> Lookup:
    try:
        return find(name)
    except UserError as unknown:
        raise located(unknown, error, query.text) from error


def read_source(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stand for the reader in a plan that is never run."""
    yield from batches


def read_lookup(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stand for the reader of a joined table in a plan that is never run."""
    yield from batches


def write_share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stand for the writer in a plan that is never run."""
    yield from batches


def _checked(frame: Any, query: QueryText, *, log_file: object) -> PlanFindings:  # noqa: ANN401
    try:
        return check_plan(frame.mapInArrow(write_share, "ack STRING"), text=query.text)
    except PenstockError:
        raise
    except Exception as error:
        raise explained(error, log_file=log_file) from error


def _outputs(frame: Any, names: tuple[str, ...]) -> tuple[Column, ...]:  # noqa: ANN401
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import NullType

    outputs: list[Column] = []
    for name, field in zip(names, frame.schema.fields, strict=True):
        # A bare NULL fits every column; so does a text, once it is NULL.
        if isinstance(field.dataType, NullType):
            outputs.append(Column(name=name, type=Primitive.STRING))
            continue
        try:
            kind = data_type(to_arrow_type(field.dataType, timezone="UTC"))
        except Exception as error:
            raise UserError(
                f'output "{name}" of the SELECT is {field.dataType.simpleString()}, '
                "which no column can hold",
                code=Code.TYPE_ERR,
                hint="Convert it with CAST(… AS STRING), for example.",
            ) from error
        outputs.append(Column(name=name, type=kind))
    return tuple(outputs)


def _located(error: Exception, query: QueryText, *, log_file: object) -> PenstockError:
    known = explained(error, log_file=log_file)
    if not isinstance(known, UserError):
        known = UserError(known.message, code=Code.TYPE_ERR)
    return located(known, error, query.text)
