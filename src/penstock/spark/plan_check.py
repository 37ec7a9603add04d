"""Check that a SELECT runs row by row in one stage, by Spark's own plan.

The logical plan is used to name what a person wrote; the physical plan decides. Between the
writer and the reader it may hold only operators that treat every row by itself, for a task must
have seen all rows whose notes it reports, and lose none.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.arrow.types import data_type
from penstock.errors import Code, PenstockError, UserError
from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryText
from penstock.model.schema import Column, Primitive
from penstock.spark.query_session import QuerySession, name_view
from penstock.spark.sql_errors import explained, located, missing_relation, unqualified

Node = Any


def all_nodes(plan: Node) -> Iterator[Node]:
    """Yield a plan's nodes, outermost first, with those of its subqueries."""
    for node in own_nodes(plan):
        yield node
        for subquery in sequence(node.subqueries()):
            yield from all_nodes(subquery)


def own_nodes(plan: Node) -> Iterator[Node]:
    """Yield a plan's nodes, outermost first, without subqueries."""
    yield plan
    for child in children(plan):
        yield from own_nodes(child)


def children(node: Node) -> list[Node]:
    """Answer the nodes that a node takes its rows from."""
    return sequence(node.children())


def sequence(found: Node) -> list[Node]:
    """Answer the elements of a Scala sequence."""
    return [found.apply(index) for index in range(found.size())]


def class_name(node: Node) -> str:
    """Answer the name of a node's class, without its package."""
    return str(node.getClass().getSimpleName())


SOURCE_FUNCTION = "read_source"
LOOKUP_FUNCTION = "read_lookup"

_HINT = "Load the rows as they are and derive that table from the loaded one, with a SELECT."
_JOIN_HINT = (
    "Join one table at a time, the source on the side whose rows are kept: "
    "FILES(…) LEFT JOIN t ON …, or WHERE x IN (SELECT y FROM t)."
)
_JOIN_WORDS = ("FULL JOIN", "a join that keeps rows of the other table")
_ROW_WISE = frozenset({"Project", "Filter", "WholeStageCodegen", "InputAdapter", "MapInArrow"})
_ALLOWED = _ROW_WISE | {"Generate", "ArrowEvalPython", "BatchEvalPython"}
_JOINS = frozenset({"BroadcastHashJoin", "BroadcastNestedLoopJoin"})
# The side that is streamed, and the joins that keep or drop its rows one by one.
_JOIN_TYPES_BY_STREAMED = {
    0: frozenset(
        {"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin"}
    ),
    1: frozenset({"Inner", "Cross", "RightOuter"}),
}
_WORDS = {
    "Deduplicate": "DISTINCT",
    "Distinct": "DISTINCT",
    "Expand": "UNPIVOT, CUBE or ROLLUP",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "RebalancePartitions": "a REBALANCE hint",
    "Repartition": "a REPARTITION or COALESCE hint",
    "RepartitionByExpression": "DISTRIBUTE BY or CLUSTER BY",
    "Sample": "TABLESAMPLE",
    "Tail": "LIMIT",
    "Window": "a window function",
    "WindowGroupLimit": "a window function",
}
_SET_OPERATIONS = {"Except": "EXCEPT", "Intersect": "INTERSECT", "Union": "UNION"}
# Calls that may mean something else in the next epoch although nothing was changed.
_CHANGING = re.compile(
    r"\b(current_\w+|now|curdate|localtimestamp|rand|randn|random|randstr|uniform|uuid|shuffle"
    r"|user|session_user)\("
)
# Spark reads these texts as a moment, and what stands in the plan is that moment.
_MOMENT = re.compile(r"'\s*(now|today|yesterday|tomorrow)\s*'", re.IGNORECASE)
# Calls about the file or the task, which know nothing of how a job reads.
_FOREIGN_CALL = re.compile(
    r"\b(input_file_\w+|monotonically_increasing_id|spark_partition_id)\("
)
_FIELDS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFindings:
    """What Spark's plans say about a SELECT that may run."""

    operators: tuple[str, ...]
    needed: tuple[str, ...]
    row_wise: bool
    reusable: bool


def check_plan(written: Node, *, text: str) -> PlanFindings:
    """Look at the plans of the frame that writes a SELECT; refuse what is not row-wise."""
    execution = written._jdf.queryExecution()  # noqa: SLF001 - No public way.
    analysed, optimised = execution.analyzed(), execution.optimizedPlan()
    _check_logical(optimised, analysed=analysed)
    path = _path(execution.executedPlan())
    for node, child in pairwise(path):
        _check_operator(node, child)
    told = str(analysed.treeString(True, False, _FIELDS_MAX, False, False)).lower()  # noqa: FBT003 - Java.
    _check_calls(told)
    changing = bool(_CHANGING.search(told) or _MOMENT.search(text))
    return PlanFindings(
        operators=tuple(_name(node) for node in path if _name(node) not in _WRAPPERS),
        # What the optimiser drops today because of the date it may want tomorrow.
        needed=_needed(analysed if changing else optimised),
        row_wise=all(_name(node) in _ROW_WISE | _EVALUATIONS for node in path),
        reusable=not changing and LOOKUP_FUNCTION not in told,
    )


def _check_calls(told: str) -> None:
    found = _FOREIGN_CALL.search(told)
    if found is not None:
        raise _refusal(
            f"{found[1]}()", hint="Select the columns _file and _row instead, or uuid()."
        )


_WRAPPERS = frozenset({"WholeStageCodegen", "InputAdapter"})
_EVALUATIONS = frozenset({"ArrowEvalPython", "BatchEvalPython"})


def _check_logical(plan: Node, *, analysed: Node) -> None:
    sources = _count(plan)
    if sources == 0:
        raise UserError(
            "the SELECT can never give a row",
            code=Code.NOT_SUPPORTED_ERR,
            hint="Its WHERE is false for every row, as one on today's date may become.",
        )
    found = [construct for node in _above_source(plan) if (construct := _construct(node))]
    # Spark makes a DISTINCT of every set operation, which is not what was written.
    written = {_SET_OPERATIONS.get(class_name(node), "") for node in all_nodes(analysed)}
    for construct in (*(sorted(written - {""}) if found else ()), *found):
        raise _refusal(construct, hint=_JOIN_HINT if construct in _JOIN_WORDS else _HINT)
    if sources > 1:
        raise _refusal("a self-join, or another second use of the source")


def _construct(node: Node) -> str | None:
    """Name what a person wrote that made this node; None if it may be harmless."""
    kind = class_name(node)
    if kind == "Aggregate":
        plain = not str(node.aggregateExpressions().mkString()).count("(")
        return "DISTINCT" if plain else "GROUP BY or an aggregate function"
    if kind == "Sort":
        return "ORDER BY" if node.__getattr__("global")() else "SORT BY"
    return _join(node) if kind == "Join" else {**_WORDS, **_SET_OPERATIONS}.get(kind)


def _join(node: Node) -> str | None:
    with_source = [bool(_count(child)) for child in children(node)]
    if not any(with_source):
        return "the source in a subquery"
    kind = str(node.joinType().toString()).partition("(")[0]
    if all(with_source):
        return "a self-join"
    if kind in _JOIN_TYPES_BY_STREAMED[with_source.index(True)]:
        return None
    return _JOIN_WORDS[0] if kind == "FullOuter" else _JOIN_WORDS[1]


def _path(plan: Node) -> list[Node]:
    """Answer the nodes from the writer down to the reader."""
    if sum(_count(sub) for sub in sequence(plan.subqueriesAll())):
        raise _refusal("the source in a subquery")
    path = [plan]
    while not _is_source(path[-1]):
        inner = [child for child in children(path[-1]) if _count(child)]
        if len(inner) != 1:
            raise _refusal("a second use of the source, or none")
        path.append(inner[0])
    return path


def _check_operator(node: Node, child: Node) -> None:
    name = _name(node)
    if name in _JOINS:
        streamed = [str(c.toString()) for c in children(node)].index(str(child.toString()))
        build_left = str(node.buildSide().toString()) == "BuildLeft"
        kind = str(node.joinType().toString()).partition("(")[0]
        if build_left != (streamed == 1) or kind not in _JOIN_TYPES_BY_STREAMED[streamed]:
            raise _refusal(_JOIN_WORDS[1], hint=_JOIN_HINT)
    elif name not in _ALLOWED:
        raise _refusal(f"what Spark runs as {name}", hint=_JOIN_HINT)


def _needed(plan: Node) -> tuple[str, ...]:
    """Answer the names of the source's columns that anything above it looks at."""
    source = next(node for node in all_nodes(plan) if _is_source(node))
    name_by_id = {
        attribute.exprId().id(): str(attribute.name())
        for attribute in sequence(source.output())
    }
    seen = {
        attribute.exprId().id()
        for node in all_nodes(plan)
        if not _is_source(node)
        for attribute in sequence(node.references().toSeq())
    }
    return tuple(name for number, name in name_by_id.items() if number in seen)


def _above_source(plan: Node) -> Iterator[Node]:
    """Yield the nodes that hold the source, outermost first."""
    if _count(plan):
        yield plan
        for child in children(plan):
            yield from _above_source(child)


def _count(plan: Node) -> int:
    """Count how often the source is read below a node."""
    return sum(_is_source(node) for node in all_nodes(plan))


def _is_source(node: Node) -> bool:
    if class_name(node) == "MapInArrow":
        return str(node.functionExpr().name()) == SOURCE_FUNCTION
    if class_name(node) == "MapInArrowExec":
        return str(node.func().name()) == SOURCE_FUNCTION
    return False


def _name(node: Node) -> str:
    return str(node.nodeName()).partition(" ")[0]


def _refusal(construct: str, *, hint: str = _HINT) -> UserError:
    return UserError(
        f"{construct} cannot be used in a job's SELECT",
        code=Code.NOT_SUPPORTED_ERR,
        detail="A job loads every row by itself: its SELECT runs on one part of the source at "
        "a time.",
        hint=hint,
    )


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
