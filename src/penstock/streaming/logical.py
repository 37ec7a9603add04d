"""The logical plan of a streaming query, read from Spark: its nodes, groupings and joins.

Spark stores the delay of a watermark in the metadata of an event-time column. An alias and
``window(…)`` keep these metadata. All other expressions lose them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce

from penstock.errors import Code, SelectError
from penstock.model.text import format_count
from penstock.spark.job_session import Frame, Session
from penstock.spark.plan_check import Node, children, class_name, sequence
from penstock.streaming.task import LOOKUP_FUNCTION, STREAM_FUNCTION

_EVENT_TIME = "spark.watermarkDelayMs"
_WINDOW = "spark.timeWindow"
_SESSION = "spark.sessionWindow"
_NAMED = frozenset({"Alias", "AttributeReference"})
_NORMALISING = frozenset({"KnownFloatingPointNormalized", "NormalizeNaNAndZero"})
_INNER = frozenset({"Cross", "Inner"})
OUTER_JOINS = frozenset({"FullOuter", "LeftOuter", "RightOuter"})
# Any watermark in milliseconds. The value is above 2**31, so that py4j passes a Java long.
_PROBE_MS = 10**12
_MS_PER_SECOND = 1_000
# Spark uses this qualifier for the columns of an unnamed subquery.
_UNNAMED = "__auto_generated_subquery_name."
_VIEW_NUMBER = re.compile(r"__\d+_*\Z")
_QUALIFIER_NUMBER = re.compile(r"__\d+_*(?=`?\.)")
_UNITS = (
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (_MS_PER_SECOND, "second"),
    (1, "millisecond"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """A node of a logical plan; the readers of tables are leaves."""

    node: Node
    kind: str
    streaming: bool
    inputs: tuple["PlanNode", ...] = ()
    # The name of the view that a leaf reads; empty for other nodes.
    reads: str = ""

    @property
    def joins_streams(self) -> bool:
        """Whether the node joins two streams."""
        return self.kind == "Join" and all(side.streaming for side in self.inputs)

    @property
    def groups(self) -> bool:
        """Whether the node is a GROUP BY or DISTINCT over a stream."""
        return self.streaming and self.kind in ("Aggregate", "Distinct")

    @property
    def stateful(self) -> bool:
        """Whether the node keeps rows between epochs."""
        return self.groups or self.joins_streams

    @property
    def join_type(self) -> str:
        """The name of Spark for the type of a join."""
        return str(self.node.joinType().toString()).partition("(")[0]

    @property
    def streams(self) -> list[str]:
        """The views of all streams that the node reads."""
        return [leaf.reads for leaf in self.walk() if leaf.reads and leaf.streaming]

    def walk(self) -> Iterator["PlanNode"]:
        """Yield this node and all nodes below it, topmost first."""
        yield self
        for node in self.inputs:
            yield from node.walk()


def read_plan(node: Node) -> PlanNode:
    """Read an analysed or optimised plan, down to the readers of tables."""
    kind, reads = class_name(node), reads_of(node)
    return PlanNode(
        node=node,
        kind=kind,
        streaming=bool(node.isStreaming()),
        inputs=() if reads else tuple(read_plan(child) for child in children(node)),
        reads=reads,
    )


def reads_of(node: Node) -> str:
    """Return the name of the view that a node reads; empty for other nodes."""
    if class_name(node) == "View":
        return str(node.desc().identifier().table())
    if class_name(node) == "MapInArrow":
        name = str(node.functionExpr().name())
        for start in (STREAM_FUNCTION, LOOKUP_FUNCTION):
            if name.startswith(start):
                return name.removeprefix(start)
    return ""


def refusal(message: str, *, hint: str, at: PlanNode | None = None) -> SelectError:
    """Return the error for a construct that a streaming query cannot use."""
    error = SelectError(message, code=Code.NOT_SUPPORTED_ERR, hint=hint)
    span = None if at is None else span_of(at.node)
    error.offset = None if span is None else span[0]
    return error


def span_of(node: Node) -> tuple[int, int] | None:
    """Return the start and end of a node in the text of the query; None if unknown."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    if not start.isDefined() or not stop.isDefined():
        return None
    return int(start.get()), int(stop.get()) + 1


def table_of(view: str) -> str:
    """Return the name of the table of a stream, from the name of its view."""
    return _VIEW_NUMBER.sub("", view)


def shown(sql: str) -> str:
    """Replace the names of views in SQL by the names of their tables."""
    return _QUALIFIER_NUMBER.sub("", sql.replace(_UNNAMED, ""))


def interval_text(duration_ms: int) -> str:
    """Format a duration exactly, in one unit: 10 minutes, 90 seconds."""
    size, unit = next(unit for unit in _UNITS if duration_ms % unit[0] == 0)
    return format_count(duration_ms // size, unit) if duration_ms else "0 seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumn:
    """A column of a GROUP BY or DISTINCT."""

    expression: Node
    event_time: bool
    window: bool
    session: bool

    @property
    def sql(self) -> str:
        """The expression as SQL."""
        return _sql(self.expression)

    @property
    def until(self) -> str:
        """The event that closes a group."""
        if self.session:
            return "the watermark passes the end of the session"
        ending = "the end of the window" if self.window else self.sql
        return f"the watermark passes {ending}"


def group_columns(node: PlanNode) -> tuple[GroupColumn, ...]:
    """Return the columns of a GROUP BY or DISTINCT; constants do not count."""
    if node.kind == "Distinct":
        found = sequence(node.inputs[0].node.output())
    else:
        found = sequence(node.node.groupingExpressions())
    return tuple(
        GroupColumn(
            expression=expression,
            event_time=_marked(expression, _EVENT_TIME),
            window=_marked(expression, _WINDOW),
            session=_marked(expression, _SESSION),
        )
        for expression in found
        if not expression.foldable()
    )


def event_time_column(node: PlanNode) -> GroupColumn | None:
    """Return the event time of a GROUP BY or DISTINCT; None if it has none."""
    return next((column for column in group_columns(node) if column.event_time), None)


def _marked(expression: Node, key: str) -> bool:
    named = class_name(expression) in _NAMED
    return named and bool(expression.metadata().contains(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin:
    """The properties of a join of two streams."""

    node: PlanNode
    # The equalities of the condition; the left side first.
    keys: tuple[tuple[Node, Node], ...]
    # How long a row of each side is kept after its event time; None: forever.
    holds_ms: tuple[int | None, int | None]

    @property
    def inner(self) -> bool:
        """Whether the join returns only rows that have a match."""
        return self.node.join_type in _INNER

    @property
    def equal_time(self) -> Node | None:
        """The left side's event time or window, if the right side must have an equal one."""
        pairs = (
            p for p in self.keys if _marked(p[0], _EVENT_TIME) and _marked(p[1], _EVENT_TIME)
        )
        return next((left for left, _ in pairs), None)

    @property
    def has_bound(self) -> bool:
        """Whether the condition limits the event times of both sides."""
        return self.equal_time is not None or None not in self.holds_ms

    @property
    def detail(self) -> str:
        """The type of the join and its equalities, as SQL."""
        return join_detail(self.node, self.keys)

    @property
    def until(self) -> str:
        """The event that deletes a row of the state."""
        time = self.equal_time
        if time is not None:
            ending = "the end of the window" if _is_window(time) else _sql(time)
            return f"the watermark passes {ending}"
        left, right = (
            _hold_text(side, self.node, hold_ms or 0)
            for side, hold_ms in zip(self.node.inputs, self.holds_ms, strict=True)
        )
        return f"the watermark passes {left} (left side) or {right} (right side)"


def join_detail(node: PlanNode, keys: tuple[tuple[Node, Node], ...]) -> str:
    """Return the type of a join and its equalities, as SQL."""
    kind = str(node.node.joinType().sql())
    equalities = " AND ".join(f"{_sql(left)} = {_sql(right)}" for left, right in keys)
    return f"{kind} on {equalities}" if equalities else kind


def _hold_text(side: PlanNode, join: PlanNode, hold_ms: int) -> str:
    """Return the event time of a side plus or minus a duration."""
    own = {time.exprId().id() for time in event_times(side)}
    used = sequence(join.node.condition().get().references().toSeq())
    name = next((_sql(a) for a in used if a.exprId().id() in own), "the event time")
    if hold_ms == 0:
        return name
    return f"{name} {'+' if hold_ms > 0 else '-'} {interval_text(abs(hold_ms))}"


def _plain(key: Node) -> Node:
    """Remove the functions that Spark adds to floating-point keys."""
    return _plain(children(key)[0]) if class_name(key) in _NORMALISING else key


def _sql(expression: Node) -> str:
    return shown(str(expression.sql()))


def event_times(node: PlanNode) -> list[Node]:
    """Return the output columns of a node that are event times."""
    return [a for a in sequence(node.node.output()) if _marked(a, _EVENT_TIME)]


def _is_window(expression: Node) -> bool:
    return _marked(expression, _WINDOW) or _marked(expression, _SESSION)


class Planner:
    """Spark's own rules, applied to the plans of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._jvm = session.sparkContext._jvm  # noqa: SLF001 - There is no public API.
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst

    def analysed(self, frame: Frame) -> PlanNode:
        """Return the analysed plan of a frame; common table expressions are inlined."""
        inline = self._catalyst.optimizer.InlineCTE(True, False, False)  # noqa: FBT003 - Java.
        return read_plan(inline.apply(_analysed(frame)))

    def optimised(self, frame: Frame) -> Node:
        """Return the optimised plan of a frame, which Spark refuses for a stream."""
        state = self._session._jsparkSession.sessionState()  # noqa: SLF001
        return state.optimizer().execute(_analysed(frame))

    def keys(self, join: PlanNode) -> tuple[tuple[Node, Node], ...]:
        """Return the equalities of a join; the left side first."""
        found = self._catalyst.planning.ExtractEquiJoinKeys.unapply(join.node)
        if not found.isDefined():
            return ()
        left, right = sequence(found.get()._2()), sequence(found.get()._3())  # noqa: SLF001
        return tuple(zip(map(_plain, left), map(_plain, right), strict=True))

    def stream_join(self, join: PlanNode) -> StreamJoin:
        """Return the properties of a join of two streams."""
        left, right = join.inputs
        return StreamJoin(
            node=join,
            keys=self.keys(join),
            holds_ms=(self._hold(left, right, join), self._hold(right, left, join)),
        )

    def _hold(self, own: PlanNode, other: PlanNode, join: PlanNode) -> int | None:
        """Return how long Spark keeps rows of one side after their event time."""
        found = self._catalyst.analysis.StreamingJoinHelper.getStateValueWatermark(
            own.node.outputSet(),
            other.node.outputSet(),
            join.node.condition(),
            self._some(_PROBE_MS),
        )
        if not found.isDefined():
            return None
        hold = _PROBE_MS - int(found.get())
        # Spark adds 1 ms if the bound is inclusive.
        return hold - 1 if hold % _MS_PER_SECOND == 1 else hold

    def with_conditions(self, frame: Frame, distance_max: timedelta | None) -> Frame:
        """Complete the conditions of all joins of two streams.

        ``distance_max`` limits the difference of the event times in inner joins. Outer joins
        get IS NOT NULL for the columns that a match needs. Spark then writes rows with such a
        NULL at once. Without these conditions, rows without an event time would stay in the
        state forever, and NULL keys would match.
        """
        from pyspark.sql import DataFrame

        analysed = _analysed(frame)
        plan = self._completed(analysed, distance_max)
        if plan is analysed:
            return frame
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._session._jsparkSession, plan), self._session)  # noqa: SLF001

    def _completed(self, node: Node, distance_max: timedelta | None) -> Node:
        if reads_of(node) or not node.isStreaming():
            return node
        before = children(node)
        after = [self._completed(child, distance_max) for child in before]
        if any(new is not old for new, old in zip(after, before, strict=True)):
            node = node.withNewChildren(self._jvm.PythonUtils.toSeq(after))
        if class_name(node) != "Join":
            return node
        join = read_plan(node)
        added: list[Node] = []
        given = [node.condition().get()] if node.condition().isDefined() else []
        if join.joins_streams and join.join_type in OUTER_JOINS and given:
            added = self._required_values(node)
        elif join.joins_streams and join.join_type in _INNER and distance_max is not None:
            added = [self._bound(join, distance_max)]
        if not added:
            return node
        condition = self._some(reduce(self._catalyst.expressions.And, [*given, *added]))
        return node.copy(node.left(), node.right(), node.joinType(), condition, node.hint())

    def _required_values(self, join: Node) -> list[Node]:
        """Return IS NOT NULL for each column that must have a value in matching rows."""
        kind = self._catalyst.plans.JoinType.apply("inner")
        inner = join.copy(join.left(), join.right(), kind, join.condition(), join.hint())
        rules = self._catalyst.optimizer
        # BETWEEN has no constraints before these rules.
        plain = rules.RewriteWithExpression.apply(rules.ReplaceExpressions.apply(inner))
        used = join.condition().get().references()
        return [
            one
            for one in sequence(plain.constraints().toSeq())
            if class_name(one) == "IsNotNull" and one.references().subsetOf(used)
        ]

    def _bound(self, join: PlanNode, distance_max: timedelta) -> Node:
        """Return the condition that limits the difference of two event times."""
        expressions = self._catalyst.expressions
        left, right = (self._timestamp(side) for side in join.inputs)
        parser = self._session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        microseconds = distance_max // timedelta(microseconds=1)
        zone = self._some(str(self._session.conf.get("spark.sql.session.timeZone")))
        first, last = (
            expressions.TimestampAddInterval(
                left, parser.parseExpression(f"INTERVAL {signed} MICROSECONDS"), zone
            )
            for signed in (f"'{-microseconds}'", f"'{microseconds}'")
        )
        return expressions.And(
            expressions.GreaterThanOrEqual(right, first),
            expressions.LessThanOrEqual(right, last),
        )

    def _timestamp(self, side: PlanNode) -> Node:
        """Return the event time of a join side; raise SelectError if it has only a window."""
        times = [time for time in event_times(side) if not _is_window(time)]
        if not times:
            raise refusal(
                '"state.ttl" needs the event time of both sides of a join',
                hint="Define a watermark for both streams, and return the event time from the "
                "subqueries that are joined.",
                at=side,
            )
        return times[0]

    def _some(self, value: object) -> Node:
        return self._jvm.scala.Option.apply(value)


def _analysed(frame: Frame) -> Node:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - There is no public API.
