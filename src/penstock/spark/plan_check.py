"""Check, by its Spark plans, that a SELECT runs row by row in one stage.

The physical plan decides. The logical plan is used to name the SQL construct in the error
message. Only row-wise operators are allowed between the writer and the reader. Otherwise a task
could report the notes of rows that it did not write.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.errors import Code, UserError

Node = Any


def all_nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan and of its subqueries, outermost first."""
    for node in own_nodes(plan):
        yield node
        for subquery in sequence(node.subqueries()):
            yield from all_nodes(subquery)


def own_nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan without its subqueries, outermost first."""
    yield plan
    for child in children(plan):
        yield from own_nodes(child)


def children(node: Node) -> list[Node]:
    """Return the inputs of a node."""
    return sequence(node.children())


def sequence(found: Node) -> list[Node]:
    """Return the elements of a Scala sequence."""
    return [found.apply(index) for index in range(found.size())]


def class_name(node: Node) -> str:
    """Return the class name of a node, without its package."""
    return str(node.getClass().getSimpleName())


# The outputs of these operators are inputs, or are computed from their ``references``. Other
# operators may use their inputs by position.
_TRANSPARENT = frozenset(
    {
        "Aggregate",
        "EventTimeWatermark",
        "Filter",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Project",
        "Sort",
        "SubqueryAlias",
        "View",
        "Window",
    }
)


def used_attributes(plan: Node, *, is_reader: Callable[[Node], bool]) -> Iterator[int]:
    """Yield the ids of the attributes that a plan returns, or uses outside of its readers."""
    used = sequence(plan.output())
    for node in own_nodes(plan):
        if is_reader(node):
            continue
        used += sequence(node.references().toSeq())
        if class_name(node) not in _TRANSPARENT:
            for child in children(node):
                used += sequence(child.output())
        for subquery in sequence(node.subqueries()):
            yield from used_attributes(subquery, is_reader=is_reader)
    yield from (attribute.exprId().id() for attribute in used)


SOURCE_FUNCTION = "read_source"
LOOKUP_FUNCTION = "read_lookup"

_HINT = "Load the rows unchanged, then compute the result with a SELECT over the loaded table."
_JOIN_HINT = (
    "Join one table at a time, with the source on the side that keeps all rows: "
    "source LEFT JOIN t ON …, or WHERE x IN (SELECT y FROM t)."
)
_JOIN_WORDS = ("FULL JOIN", "a join that keeps rows of the other table")
_WRAPPERS = frozenset({"WholeStageCodegen", "InputAdapter"})
# Operators that return at most one row for each input row.
_ROW_WISE = _WRAPPERS | {
    "Project",
    "Filter",
    "MapInArrow",
    "ArrowEvalPython",
    "BatchEvalPython",
}
_ALLOWED = _ROW_WISE | {"Generate"}
_JOINS = frozenset({"BroadcastHashJoin", "BroadcastNestedLoopJoin"})
# The join types that keep or drop each row of the streamed side separately, by the index of
# that side.
JOIN_TYPES_BY_STREAMED = {
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
# Functions that may return another value in the next epoch.
_CHANGING = re.compile(
    r"\b(current_\w+|now|curdate|localtimestamp|rand|randn|random|randstr|uniform|uuid|shuffle"
    r"|user|session_user)\("
)
# Spark replaces these texts by a timestamp at planning time.
_MOMENT = re.compile(r"'\s*(now|today|yesterday|tomorrow)\s*'", re.IGNORECASE)
# Functions that depend on the files or tasks of Spark's own readers.
_FOREIGN_CALL = re.compile(
    r"\b(input_file_\w+|monotonically_increasing_id|spark_partition_id)\("
)
_FIELDS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFindings:
    """Properties of a SELECT that passed the check."""

    operators: tuple[str, ...]
    needed: tuple[str, ...]
    row_wise: bool
    reusable: bool


def check_plan(written: Node, *, text: str) -> PlanFindings:
    """Return the properties of a SELECT, from the frame that writes its rows.

    Raise UserError if the SELECT is not row-wise.
    """
    execution = written._jdf.queryExecution()  # noqa: SLF001 - No public way.
    analysed, optimised = execution.analyzed(), execution.optimizedPlan()
    _check_logical(optimised, analysed=analysed)
    path = _path(execution.executedPlan())
    for node, child in pairwise(path):
        _check_operator(node, child)
    tree = str(analysed.treeString(True, False, _FIELDS_MAX, False, False)).lower()  # noqa: FBT003 - Java.
    foreign = _FOREIGN_CALL.search(tree)
    if foreign is not None:
        raise _unsupported(
            f"{foreign[1]}()", hint="Select the columns _file and _row instead, or uuid()."
        )
    changing = bool(_CHANGING.search(tree) or _MOMENT.search(text))
    return PlanFindings(
        operators=tuple(_name(node) for node in path if _name(node) not in _WRAPPERS),
        # A condition on the current date may remove a column today that is needed tomorrow.
        needed=_needed(analysed if changing else optimised),
        row_wise=all(_name(node) in _ROW_WISE for node in path),
        reusable=not changing and LOOKUP_FUNCTION not in tree,
    )


def _check_logical(plan: Node, *, analysed: Node) -> None:
    sources = _count(plan)
    if sources == 0:
        raise UserError(
            "the SELECT can never return a row",
            code=Code.NOT_SUPPORTED_ERR,
            hint="The WHERE is false for every row, possibly because of the current date.",
        )
    found = [construct for node in _above_source(plan) if (construct := _construct(node))]
    if found:
        # Spark's plan has DISTINCT in place of a set operation, so check set operations first.
        written = {_SET_OPERATIONS.get(class_name(node), "") for node in all_nodes(analysed)}
        construct = min(written - {""}, default=found[0])
        raise _unsupported(construct, hint=_JOIN_HINT if construct in _JOIN_WORDS else _HINT)
    if sources > 1:
        raise _unsupported("a self-join, or a second use of the source")


def _construct(node: Node) -> str | None:
    """Return the SQL construct of a node; None if the node may be row-wise."""
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
    if kind in JOIN_TYPES_BY_STREAMED[with_source.index(True)]:
        return None
    return _JOIN_WORDS[0] if kind == "FullOuter" else _JOIN_WORDS[1]


def _path(plan: Node) -> list[Node]:
    """Return the nodes from the writer down to the reader."""
    if sum(_count(sub) for sub in sequence(plan.subqueriesAll())):
        raise _unsupported("the source in a subquery")
    path = [plan]
    while not _is_source(path[-1]):
        inner = [child for child in children(path[-1]) if _count(child)]
        if len(inner) != 1:
            raise _unsupported("a SELECT that does not use the source exactly once")
        path.append(inner[0])
    return path


def _check_operator(node: Node, child: Node) -> None:
    name = _name(node)
    if name in _JOINS:
        streamed = [str(c.toString()) for c in children(node)].index(str(child.toString()))
        build_left = str(node.buildSide().toString()) == "BuildLeft"
        kind = str(node.joinType().toString()).partition("(")[0]
        if build_left != (streamed == 1) or kind not in JOIN_TYPES_BY_STREAMED[streamed]:
            raise _unsupported(_JOIN_WORDS[1], hint=_JOIN_HINT)
    elif name not in _ALLOWED:
        raise _unsupported(f"the Spark operator {name}", hint=_JOIN_HINT)


def _needed(plan: Node) -> tuple[str, ...]:
    """Return the names of the source columns that the plan uses."""
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
    """Yield the nodes that contain the source, outermost first."""
    if _count(plan):
        yield plan
        for child in children(plan):
            yield from _above_source(child)


def _count(plan: Node) -> int:
    """Return the number of times that a plan reads the source."""
    return sum(_is_source(node) for node in all_nodes(plan))


def _is_source(node: Node) -> bool:
    if class_name(node) == "MapInArrow":
        return str(node.functionExpr().name()) == SOURCE_FUNCTION
    if class_name(node) == "MapInArrowExec":
        return str(node.func().name()) == SOURCE_FUNCTION
    return False


def _name(node: Node) -> str:
    return str(node.nodeName()).partition(" ")[0]


def _unsupported(construct: str, *, hint: str = _HINT) -> UserError:
    return UserError(
        f"{construct} cannot be used in a job's SELECT",
        code=Code.NOT_SUPPORTED_ERR,
        detail="A job's SELECT runs on one part of the source at a time, so it must process "
        "each row separately.",
        hint=hint,
    )
