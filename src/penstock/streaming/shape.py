"""Check the shape of a streaming query, and choose its output mode and key.

Every refusal names the construct and what to write instead. The checks use two plans of Spark.
The analysed plan has the constructs that the user wrote. The optimised plan has the conditions
of joins, which a user can also write in WHERE.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.model.job import StreamView
from penstock.model.job_kinds import OutputMode
from penstock.spark.plan_check import (
    JOIN_TYPES_BY_STREAMED,
    Node,
    children,
    class_name,
    sequence,
)
from penstock.streaming.logical import (
    OUTER_JOINS,
    GroupColumn,
    PlanNode,
    StreamJoin,
    event_time_column,
    group_columns,
    refusal,
    table_of,
)

Views = Mapping[str, StreamView]


@dataclass(frozen=True, slots=True)
class _Refused:
    """The message of a refusal, and what to write instead."""

    message: str
    hint: str


def _over_stream(construct: str, hint: str) -> _Refused:
    return _Refused(f"{construct} cannot be used over a stream", hint)


def _later(construct: str) -> _Refused:
    hint = f"Store all rows, and use {construct} in a SELECT over the streaming table."
    return _over_stream(construct, hint)


_WINDOW_FUNCTION = _over_stream(
    "a window function (OVER)",
    "Write GROUP BY window(ts, '10 minutes'). For the newest value of a key, write "
    "max_by(x, ts).",
)
_REFUSED_BY_KIND = {
    "GlobalLimit": _later("LIMIT"),
    "LocalLimit": _later("LIMIT"),
    "Tail": _later("LIMIT"),
    "Offset": _later("OFFSET"),
    "Sort": _later("ORDER BY"),
    "Sample": _later("TABLESAMPLE"),
    "Window": _WINDOW_FUNCTION,
    "WindowGroupLimit": _WINDOW_FUNCTION,
    "Except": _over_stream(
        "EXCEPT",
        "For a static table, write WHERE NOT EXISTS (SELECT … FROM t …). For two streams, "
        "write a LEFT JOIN with a time bound and WHERE … IS NULL.",
    ),
    "Intersect": _over_stream(
        "INTERSECT",
        "For a static table, write WHERE EXISTS (SELECT … FROM t …). For two streams, write a "
        "JOIN with a time bound.",
    ),
    "UnionLoop": _over_stream(
        "WITH RECURSIVE", "Only a query over static tables can be recursive."
    ),
}
_UNION = _over_stream(
    "UNION without ALL",
    "Write UNION ALL. To remove duplicates, add GROUP BY or DISTINCT with the event time.",
)
_MIXED_UNION = _Refused(
    "UNION ALL cannot combine a stream with a static table",
    "Read both tables with STREAM, or load the static rows into the table of the stream.",
)
_GROUPING_SETS = _over_stream(
    "ROLLUP, CUBE or GROUPING SETS",
    "Create one streaming table for each GROUP BY.",
)
_DISTINCT_AGGREGATE = _over_stream(
    "an aggregate function with DISTINCT",
    "Use approx_count_distinct(x), or size(collect_set(x)) for few values.",
)
_ANTI_JOIN = _Refused(
    "LEFT ANTI JOIN cannot join two streams",
    "Write a LEFT JOIN with a time bound and WHERE … IS NULL.",
)
_POSITION_HINT = "Use uuid() in the outermost SELECT, or a column of the table."
_STATE_HINT = (
    "A repeated epoch must compute the same state. Use the function only in the outermost "
    "SELECT, above GROUP BY, DISTINCT and joins of streams."
)
_ORDER_HINT = "The order of rows is not fixed. Use min_by(x, ts) or max_by(x, ts)."
# Functions that depend on the position of a row in Spark's own readers.
_POSITION_FUNCTIONS = re.compile(
    r"input_file_\w+|monotonically_increasing_id|spark_partition_id", re.IGNORECASE
)
_ORDER_FUNCTIONS = frozenset({"AnyValue", "First", "Last"})
_STREAM_JOINS = frozenset(
    {"Cross", "FullOuter", "Inner", "LeftOuter", "LeftSemi", "RightOuter"}
)
_GROUPING_ID = "spark_grouping_id"
# Operators above the topmost GROUP BY that keep every group.
_KEEPING = frozenset(
    {
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
    }
)
_WORDS_BY_KIND = {
    "Filter": "HAVING or WHERE over the GROUP BY",
    "Generate": "explode() or LATERAL VIEW over the GROUP BY",
    "Join": "a join over the GROUP BY",
    "LateralJoin": "a join over the GROUP BY",
    "Union": "UNION ALL over the GROUP BY",
}
_OVER = {"Aggregate": "GROUP BY", "Distinct": "DISTINCT", "Join": "a join of streams"}
_BOUND_HINT = (
    "Add for example AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 "
    "MINUTES to ON. Or join on the same window(ts, '10 minutes') of both sides."
)
_TTL = '"state.ttl"'


def check_shape(plan: PlanNode) -> None:
    """Raise UserError for a construct of the analysed plan that no stream can use."""
    for node in plan.walk():
        found = _construct(node) if node.streaming else None
        if found is not None:
            raise _refused(found, at=node)
        if node.streaming and node.kind == "Join":
            _check_join_type(node)
    _check_functions(plan, kept=False)


def _refused(found: _Refused, *, at: PlanNode) -> Exception:
    return refusal(found.message, hint=found.hint, at=at)


def _construct(node: PlanNode) -> _Refused | None:
    """Return the refused construct of a node; None if the node is allowed."""
    match node.kind:
        case "Sort" if not node.node.__getattr__("global")():
            return _later("SORT BY")
        case "Distinct" if node.inputs[0].kind == "Union":
            return _UNION
        case "Union" if not all(side.streaming for side in node.inputs):
            return _MIXED_UNION
        case "Aggregate":
            return _aggregate_construct(node)
        case _:
            return _REFUSED_BY_KIND.get(node.kind)


def _aggregate_construct(node: PlanNode) -> _Refused | None:
    if any(column.sql == _GROUPING_ID for column in group_columns(node)):
        return _GROUPING_SETS
    calls = _aggregate_calls(sequence(node.node.aggregateExpressions()))
    return _DISTINCT_AGGREGATE if any(call.isDistinct() for call in calls) else None


def _aggregate_calls(expressions: Iterable[Node]) -> Iterator[Node]:
    for expression in expressions:
        if class_name(expression) == "AggregateExpression":
            yield expression
        else:
            yield from _aggregate_calls(children(expression))


def _check_join_type(node: PlanNode) -> None:
    kind = node.join_type
    if node.joins_streams:
        if kind not in _STREAM_JOINS:
            raise _refused(_ANTI_JOIN, at=node)
        return
    streamed = 0 if node.inputs[0].streaming else 1
    if kind not in JOIN_TYPES_BY_STREAMED[streamed]:
        raise refusal(
            f"a stream cannot be the {('left', 'right')[streamed]} side of a "
            f"{node.node.joinType().sql()} JOIN with a static table",
            hint="Put the stream on the side that keeps all rows: stream LEFT JOIN t ON ….",
            at=node,
        )


def _check_functions(node: PlanNode, *, kept: bool) -> None:
    """Check the functions of a plan; ``kept`` means that an operator above keeps rows."""
    if not node.streaming or node.reads:
        return
    kept = kept or node.stateful
    for expression in sequence(node.node.expressions()):
        for call in _changing_calls(expression):
            _check_changing(call, kept=kept, at=node)
    if node.kind == "Aggregate":
        for call in _aggregate_calls(sequence(node.node.aggregateExpressions())):
            function = call.aggregateFunction()
            if class_name(function) in _ORDER_FUNCTIONS:
                raise _refused(_over_stream(f"{function.prettyName()}()", _ORDER_HINT), at=node)
    for child in node.inputs:
        _check_functions(child, kept=kept)


def _changing_calls(expression: Node) -> Iterator[Node]:
    """Yield the non-deterministic calls in an expression."""
    if expression.deterministic():
        return
    inputs = children(expression)
    if all(given.deterministic() for given in inputs):
        yield expression
    for given in inputs:
        yield from _changing_calls(given)


def _check_changing(call: Node, *, kept: bool, at: PlanNode) -> None:
    python = class_name(call) == "PythonUDF"
    name = str(call.name()) if python else str(call.prettyName()).lower()
    if _POSITION_FUNCTIONS.fullmatch(name):
        raise _refused(_over_stream(f"{name}()", _POSITION_HINT), at=at)
    if kept:
        raise refusal(
            f"{name}() cannot be used in or below GROUP BY, DISTINCT or a join of streams",
            hint=_STATE_HINT,
            at=at,
        )


def check_streams(plan: PlanNode, optimised: PlanNode, views: Views) -> None:
    """Raise UserError if a stream is not read, is read twice, or has no usable row."""
    unused = sorted(views.keys() - set(plan.streams))
    if unused:
        raise refusal(
            f"STREAM {table_of(unused[0])} is not used by the query",
            hint="Remove the part of WITH that has the stream.",
        )
    false = [node for node in optimised.walk() if node.streaming and _never_true(node)]
    if false or views.keys() - set(optimised.streams):
        raise refusal(
            "the query can never return a row of a stream",
            hint="A condition is false for every row, possibly because of the current date.",
            at=false[0] if false else None,
        )
    if len(optimised.streams) > len(plan.streams):
        raise refusal(
            "a subquery that depends on rows of a stream would read the stream again",
            hint="Compare the subquery with the stream by equalities only. Or write a join: "
            "stream LEFT JOIN (SELECT … GROUP BY …) t ON ….",
        )


def _never_true(node: PlanNode) -> bool:
    if node.kind != "Filter":
        return False
    condition = node.node.condition()
    literal = class_name(condition) == "Literal"
    return literal and str(condition.toString()) in ("false", "null")


def check_joins(joins: Iterable[StreamJoin], views: Views) -> None:
    """Raise UserError for a join of streams whose state would grow forever."""
    for join in joins:
        sides = " and ".join(
            ", ".join(map(table_of, side.streams)) for side in join.node.inputs
        )
        if not join.keys:
            raise refusal(
                f"the join of the streams {sides} has no equality",
                hint="Add an equality to ON, for example a.id = b.id.",
                at=join.node,
            )
        _require_watermarks(join.node, views, needed_by="a join of streams")
        if not join.has_bound:
            raise refusal(
                f"the join of the streams {sides} has no bound for both event times",
                hint=_bound_hint(join),
                at=join.node,
            )


def _bound_hint(join: StreamJoin) -> str:
    return f"{_BOUND_HINT} Or set {_TTL}." if join.inner else _BOUND_HINT


def _require_watermarks(node: PlanNode, views: Views, *, needed_by: str) -> None:
    """Raise UserError if an event-time operator reads a stream without a watermark."""
    without = [view for view in node.streams if views[view].event_time is None]
    if without:
        name = table_of(without[0])
        raise refusal(
            f"{needed_by} needs a watermark for the stream {name}",
            hint=f"Write STREAM {name} WATERMARK ts DELAY OF INTERVAL 5 MINUTES, or ALTER "
            f"TABLE {name} SET WATERMARK FOR ts AS ts - INTERVAL 5 MINUTES.",
            at=node,
        )


def check_ttl(plan: PlanNode, joins: Sequence[StreamJoin]) -> None:
    """Raise UserError if ``state.ttl`` cannot be used by the query."""
    if any(node.groups and event_time_column(node) is None for node in plan.walk()):
        raise _ttl_error(
            "does not apply to a GROUP BY or DISTINCT without an event-time window",
            hint="Group by window(ts, …): its state ends with the watermark.",
        )
    if not joins:
        raise _ttl_error("needs an inner join of two streams", hint=f"Remove {_TTL}.")
    if not all(join.inner for join in joins):
        raise _ttl_error("can be used only with inner joins", hint=_BOUND_HINT)
    if any(join.keys and join.has_bound for join in joins):
        raise _ttl_error(
            "cannot be used with a join that has a time bound",
            hint=f"Remove {_TTL}: the state ends with the time bound.",
        )


def _ttl_error(reason: str, *, hint: str) -> Exception:
    return refusal(f"{_TTL} {reason}", hint=hint)


def output_of(
    plan: PlanNode, requested: OutputMode | None, views: Views
) -> tuple[OutputMode, tuple[str, ...]]:
    """Return the output mode and the key columns of a query.

    Without a request, the mode is update if the topmost stateful operator is a GROUP BY
    without an event time.
    """
    path = _path(plan)
    top = path[-1]
    for node in plan.walk():
        if node.groups:
            _check_event_times(node, views)
    unwindowed = top.kind == "Aggregate" and event_time_column(top) is None
    mode = requested or (OutputMode.UPDATE if unwindowed else OutputMode.APPEND)
    if mode is OutputMode.APPEND:
        _check_append(plan, views, top=top, over=None)
        return mode, ()
    _check_update(path)
    return mode, tuple(_key_name(column, path) for column in group_columns(top))


def _path(plan: PlanNode) -> list[PlanNode]:
    """Return the nodes from the result down to the topmost operator with state.

    Without such an operator, the last node is a reader or a UNION.
    """
    path = [plan]
    while not path[-1].stateful:
        inner = [node for node in path[-1].inputs if node.streaming]
        if len(inner) != 1:
            break
        path.append(inner[0])
    return path


def _check_event_times(node: PlanNode, views: Views) -> None:
    """Check the event times of a GROUP BY or DISTINCT; both output modes need this."""
    columns = group_columns(node)
    times = [column for column in columns if column.event_time]
    word = _OVER[node.kind]
    if len(times) > 1:
        raise refusal(
            f"{word} has more than one event time: {', '.join(c.sql for c in times)}",
            hint="Group by one event time, and use min(…) or max(…) for the others.",
            at=node,
        )
    if times:
        _require_watermarks(node, views, needed_by=f"{word} with an event time")
    if any(column.session for column in columns) and len(columns) == 1:
        raise refusal(
            "session_window() cannot be the only column of GROUP BY over a stream",
            hint="Add another column to GROUP BY. Sessions of different keys are separate.",
            at=node,
        )


def _check_append(
    node: PlanNode, views: Views, *, top: PlanNode, over: PlanNode | None
) -> None:
    """Check that the watermark closes every group; ``over`` is an operator with state above."""
    if node.groups and event_time_column(node) is None:
        raise _unclosed(node, views, top=top, over=over)
    inner = node if node.stateful else over
    for child in node.inputs:
        _check_append(child, views, top=top, over=inner)


def _unclosed(
    node: PlanNode, views: Views, *, top: PlanNode, over: PlanNode | None
) -> Exception:
    """Return the error for a GROUP BY or DISTINCT that the watermark never closes."""
    word = _OVER[node.kind]
    if over is not None:
        return refusal(
            f"{_OVER[over.kind]} cannot be used over {word} without an event time",
            hint=f"Add window(ts, …) to the inner {word}. Or store the inner query as a "
            "streaming table of its own, and join this table without STREAM.",
            at=node,
        )
    _require_watermarks(node, views, needed_by=f"{word} in append output")
    if node.kind == "Distinct":
        hint = "Add the event time to the columns of SELECT DISTINCT, or write GROUP BY."
    elif node is top:
        hint = 'Set "output" = "update", or add window(ts, \'10 minutes\') to GROUP BY.'
    else:
        hint = "Add window(ts, '10 minutes') to GROUP BY, or create a streaming table for each."
    return refusal(
        f"append output cannot be used with {word} without an event time", hint=hint, at=node
    )


def _check_update(path: Sequence[PlanNode]) -> None:
    """Check that the result has one current row for each group of the topmost GROUP BY."""
    *above, top = path
    if not top.groups:
        raise refusal(
            "update output needs GROUP BY as the topmost operator with state",
            hint='Set "output" = "append".',
            at=top,
        )
    for node in above:
        if node.kind not in _KEEPING:
            raise refusal(
                f"update output cannot be used with "
                f"{_WORDS_BY_KIND.get(node.kind, f'the operator {node.kind}')}",
                hint="Remove it, and use it in a SELECT over the streaming table. A row of the "
                "table would stay after it no longer matches.",
                at=node,
            )
    if any(column.session for column in group_columns(top)):
        raise refusal(
            "update output cannot be used with session_window()",
            hint='Set "output" = "append".',
            at=top,
        )
    for node in chain.from_iterable(child.walk() for child in top.inputs):
        _check_below_update(node, top=top)


def _check_below_update(node: PlanNode, *, top: PlanNode) -> None:
    if node.groups:
        closed = event_time_column(node) is not None
        rest = "read this table with STREAM" if closed else "use a SELECT over this table"
        raise refusal(
            f"{_OVER[top.kind]} in update output cannot be used over {_OVER[node.kind]}",
            hint="Add window(ts, …) to both, and use append output. Or store the inner query "
            f"as a streaming table of its own, and {rest}.",
            at=node,
        )
    if node.joins_streams and node.join_type in OUTER_JOINS:
        raise refusal(
            "update output cannot be used with an outer join of two streams",
            hint="Add window(ts, …) to GROUP BY, and use append output. Or use an inner join.",
            at=node,
        )


def _key_name(column: GroupColumn, path: Sequence[PlanNode]) -> str:
    """Return the name of the output that contains a column of the topmost GROUP BY."""
    *above, top = path
    ids = _ids_at(column, top)
    for node in reversed(above):
        if node.kind == "Project":
            ids = {
                item.exprId().id()
                for item in sequence(node.node.projectList())
                if _carried(item, column) in ids
            }
    names = [str(a.name()) for a in sequence(path[0].node.output()) if a.exprId().id() in ids]
    if not names:
        raise refusal(
            f"update output needs the GROUP BY column {column.sql} in the SELECT",
            hint=f"Add {column.sql} to the SELECT. The table keeps one row for each group.",
            at=top,
        )
    return names[0]


def _ids_at(column: GroupColumn, top: PlanNode) -> set[int]:
    """Return the ids of the outputs of a GROUP BY that contain one of its columns."""
    if top.kind == "Distinct":
        return {column.expression.exprId().id()}
    return {
        item.exprId().id()
        for item in sequence(top.node.aggregateExpressions())
        if _value(item, column).semanticEquals(column.expression)
    }


def _carried(item: Node, column: GroupColumn) -> int | None:
    """Return the id of the attribute that an output contains; None for other expressions."""
    value = _value(item, column)
    return value.exprId().id() if class_name(value) == "AttributeReference" else None


def _value(item: Node, column: GroupColumn) -> Node:
    """Return the expression of an output; for the start or end of a window, the window."""
    value = item.child() if class_name(item) == "Alias" else item
    if column.window and class_name(value) == "GetStructField":
        return value.child()
    return value
