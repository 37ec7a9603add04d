"""Analyse a streaming query for CREATE and EXPLAIN, and build its frame for every run.

``prepare`` builds the frame of a query. The analysis and the runner both use this
function. So the state of a checkpoint always belongs to the same plan.
"""

import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.epochs.output import TaskPlan
from penstock.errors import Code, ExternalError, PenstockError, StoppedError, UserError
from penstock.model.codec import to_text
from penstock.model.job import NEVER, Operator, SourceRef, StreamingQuery, StreamView
from penstock.model.job_kinds import OutputMode
from penstock.model.query import Lookup, StreamRequest
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Sealed
from penstock.sources.source import ReadTask
from penstock.spark.executor import SparkExecutor
from penstock.spark.job_session import Frame, outputs_of, select_known
from penstock.spark.plan_check import all_nodes, class_name, sequence, used_attributes
from penstock.spark.sql_errors import condition_of, message_of, with_location
from penstock.streaming.checkpoint import BatchPlan, CheckpointFolder, SourcePlan
from penstock.streaming.logical import (
    Planner,
    PlanNode,
    StreamJoin,
    event_time_column,
    group_columns,
    interval_text,
    join_detail,
    read_plan,
    reads_of,
    refusal,
    shown,
    span_of,
    table_of,
)
from penstock.streaming.query import QuerySettings, RunningQuery, StreamSession
from penstock.streaming.shape import (
    check_joins,
    check_shape,
    check_streams,
    check_ttl,
    output_of,
)
from penstock.streaming.task import StreamTask
from penstock.streaming.watermark import FIRST_WATERMARK_MS

_LOOKUPS_MAX = 50
_FIELDS_MAX = 2**31 - 1
_TRIAL_SECONDS_MAX = 300
_FIRST_BATCH = 0
_NOW_CALL = re.compile(r"\b(current_(date|time|timestamp)|now|curdate|localtime(stamp)?)\(")
# Spark replaces these texts by a timestamp at planning time.
_MOMENT = re.compile(r"'\s*(now|today|yesterday|tomorrow)\s*'", re.IGNORECASE)
_STATIC = "static table"
# A number instead of an expression in GROUP BY.
_ORDINAL = re.compile(r"(BY|,) *\d+ *(,|\Z)", re.IGNORECASE)
_SUBQUERY_CONDITION = "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"


def prepare(
    session: StreamSession, query: StreamingQuery, *, lookups: Mapping[str, tuple[Column, ...]]
) -> Frame:
    """Return the frame of a query in a new session; ``lookups`` are the static tables."""
    for view in query.views:
        session.add_stream(view)
    for name, columns in lookups.items():
        session.add_lookup(name, columns)
    frame = session.select(query.text)
    return Planner(session.session).with_conditions(frame, query.state_ttl)


class StreamAnalyzer:
    """Analyses streaming queries; ``scratch`` is a folder for temporary checkpoints."""

    def __init__(self, executor: SparkExecutor, *, scratch: Path) -> None:
        self._executor = executor
        self._scratch = scratch

    def analyse(
        self, request: StreamRequest, *, find_lookup: Callable[[str], Lookup]
    ) -> StreamingQuery:
        """Check a query and return its properties; ``find_lookup`` finds static tables."""
        settings = QuerySettings(
            parallelism=request.parallelism,
            time_zone=request.time_zone,
            python_udfs=request.python_udfs,
        )
        lookup_by_name: dict[str, Lookup] = {}
        with self._explained(request.text):
            session = self._session(settings, self._temporary())

            def add(name: str) -> str:
                lookup = find_lookup(name)
                session.add_lookup(lookup.table.name, lookup.columns)
                lookup_by_name[lookup.table.name] = lookup
                return lookup.table.name

            for view in request.views:
                _check_event_time(view)
                session.add_stream(view)
            frame, text = select_known(
                request.text, select=session.select, add=add, tables_max=_LOOKUPS_MAX
            )
            found = _Analysis(session, request, frame).query()
        return replace(
            found,
            text=text,
            lookups=tuple(lookup.joined_table for lookup in lookup_by_name.values()),
        )

    def try_epoch(
        self,
        query: StreamingQuery,
        *,
        time_zone: str,
        python_udfs: str,
        lookups: Sequence[Lookup],
    ) -> None:
        """Run an empty epoch in a temporary checkpoint; raise UserError if Spark cannot."""
        settings = QuerySettings(
            parallelism=query.parallelism, time_zone=time_zone, python_udfs=python_udfs
        )
        folder = CheckpointFolder(self._temporary())
        running: RunningQuery | None = None
        try:
            with self._explained(query.text):
                session = self._session(settings, folder.path)
                columns = {lookup.table.name: lookup.columns for lookup in lookups}
                frame = prepare(session, query, lookups=columns)
                _write_empty_batch(folder, query, lookups)
                running = RunningQuery(
                    frame,
                    mode=query.output,
                    folder=folder,
                    explain=partial(self._converted, text=query.text),
                )
                _run_batch(running)
        finally:
            if running is not None:
                running.stop()
            shutil.rmtree(folder.path, ignore_errors=True)

    def _session(self, settings: QuerySettings, checkpoint: Path) -> StreamSession:
        root = self._executor.running().sessions()
        return StreamSession(root, settings, checkpoint=checkpoint)

    def _temporary(self) -> Path:
        return self._scratch / f"trial-{uuid.uuid4().hex}"

    @contextmanager
    def _explained(self, text: str) -> Iterator[None]:
        """Convert Spark's errors to errors of the query, with the place in its text."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            raise self._converted(error, text=text) from error

    def _converted(self, error: Exception, *, text: str) -> PenstockError:
        """Return the error of a query that Spark cannot analyse or run."""
        known = self._executor.convert_error(error)
        if known is error or not self._executor.ready:
            return known
        # Spark is still running, so the query is the cause.
        if condition_of(error) == _SUBQUERY_CONDITION:
            known = refusal(
                "STREAM cannot be used in a subquery of an expression, such as IN or EXISTS",
                hint="Join the stream with a time bound, or read the table without STREAM.",
            )
        elif not isinstance(known, UserError) or known.code != Code.TYPE_ERR:
            message = message_of(error).rstrip(".;")
            known = UserError(
                f"Spark cannot run the query: {message}",
                code=Code.NOT_SUPPORTED_ERR,
                hint=known.hint,
            )
        return with_location(known, error, text)


def _check_event_time(view: StreamView) -> None:
    kinds = [column.type for column in view.columns if column.name == view.event_time]
    if kinds and kinds[0] is not Primitive.TIMESTAMP:
        raise UserError(
            f'event time "{view.event_time}" of the stream {table_of(view.view)} must have the '
            f"type TIMESTAMP, not {kinds[0].sql}",
            code=Code.TYPE_ERR,
            hint="Use a TIMESTAMP column for the watermark of the table.",
        )


def _write_empty_batch(
    folder: CheckpointFolder, query: StreamingQuery, lookups: Sequence[Lookup]
) -> None:
    """Create a checkpoint whose first batch reads no row."""
    folder.create(str(uuid.uuid4()), frozen={})
    folder.write_pins(
        _FIRST_BATCH, {lookup.table.name: replace(lookup, files=()) for lookup in lookups}
    )
    plan = BatchPlan(
        epoch=1,
        batch=_FIRST_BATCH,
        first=0,
        slots=query.parallelism,
        moves=False,
        watermark_ms=FIRST_WATERMARK_MS,
        pins={},
        sources={view.split: SourcePlan(table="", begin="", end="") for view in query.views},
    )
    folder.write_plan(plan)


def _run_batch(running: RunningQuery) -> None:
    """Run the open batch without writing rows; raise ExternalError if it takes too long."""
    timer = threading.Timer(_TRIAL_SECONDS_MAX, running.cancel)
    timer.start()
    try:
        running.opened(threading.Event())
        running.run(to_text(StreamTask(output=_no_output(), replay=True)))
    except StoppedError as error:
        raise ExternalError(
            f"Spark did not run an empty epoch of the query within {_TRIAL_SECONDS_MAX} s",
            code=Code.TIMEOUT_ERR,
        ) from error
    finally:
        timer.cancel()


def _no_output() -> TaskPlan:
    """Return the plan of tasks that discard their rows."""
    read = ReadTask(
        source=SourceRef(kind="", options=()),
        access=Sealed(),
        payload=None,
        columns=(),
        needed=(),
        reads=(),
    )
    return TaskPlan(
        task=0,
        attempt_id="",
        number=0,
        epoch=1,
        table_root="",
        rejects_root="",
        table_access=Sealed(),
        strict=True,
        columns=(),
        partition_by=(),
        targets=(),
        place_columns=(),
        view_columns=(),
        output_names=(),
        read=read,
    )


class _Analysis:
    """The analysis of one frame."""

    def __init__(self, session: StreamSession, request: StreamRequest, frame: Frame) -> None:
        self._planner = Planner(session.session)
        self._request = request
        self._views = {view.view: view for view in request.views}
        self._read(frame)

    def _read(self, frame: Frame) -> None:
        self._frame = frame
        self._plan = self._planner.analysed(frame)
        self._optimised = read_plan(self._planner.optimised(frame))

    def query(self) -> StreamingQuery:
        """Return the properties of the query; raise UserError if it cannot run."""
        request = self._request
        check_shape(self._plan)
        check_streams(self._plan, self._optimised, self._views)
        if request.state_ttl is not None:
            check_ttl(self._plan, self._joins(self._optimised))
            self._read(self._planner.with_conditions(self._frame, request.state_ttl))
        outer = (join for join in self._joins(self._plan) if not join.inner)
        output, key = output_of(self._plan, request.output, self._views)
        check_joins((*outer, *self._joins(self._optimised)), self._views)
        uses_now = self._uses_now()
        views = self._with_needed(self._plan if uses_now else self._optimised)
        return StreamingQuery(
            text=request.text,
            views=views,
            outputs=self._outputs(),
            lookups=(),
            output=output,
            key=key,
            parallelism=request.parallelism,
            operators=self._operators(views, output),
            uses_now=uses_now,
            state_ttl=request.state_ttl,
        )

    def _joins(self, plan: PlanNode) -> list[StreamJoin]:
        return [self._planner.stream_join(node) for node in plan.walk() if node.joins_streams]

    def _outputs(self) -> tuple[Column, ...]:
        names = tuple(self._frame.columns)
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise UserError(
                    f'output "{name}" of the query occurs more than once',
                    code=Code.NOT_SUPPORTED_ERR,
                    hint="Name each output, for example b.id AS b_id.",
                )
            seen.add(name.lower())
        return outputs_of(self._frame, names)

    def _uses_now(self) -> bool:
        tree = self._plan.node.treeString(True, False, _FIELDS_MAX, False, False)  # noqa: FBT003 - Java.
        return bool(_NOW_CALL.search(str(tree).lower()) or _MOMENT.search(self._request.text))

    def _with_needed(self, plan: PlanNode) -> tuple[StreamView, ...]:
        """Return the streams with the columns that a plan uses."""
        used = set(used_attributes(plan.node, is_reader=lambda node: bool(reads_of(node))))
        needed: dict[str, set[str]] = {name: set() for name in self._views}
        for node in all_nodes(plan.node):
            if (view := reads_of(node)) in needed:
                attributes = sequence(node.output())
                needed[view] |= {str(a.name()) for a in attributes if a.exprId().id() in used}
        return tuple(
            replace(
                view,
                needed=tuple(
                    column.name
                    for column in view.columns
                    if column.name in needed[view.view] or column.name == view.event_time
                ),
            )
            for view in self._views.values()
        )

    def _operators(
        self, views: Sequence[StreamView], output: OutputMode
    ) -> tuple[Operator, ...]:
        """Return the operators of the plan that runs, topmost first."""
        view_by_name = {view.view: view for view in views}
        clauses = self._group_clauses()
        found: list[Operator] = []
        for node in self._optimised.walk():
            if node.groups:
                notice = self._unwritten(node) if output is OutputMode.APPEND else ""
                own = [replace(_group(node, next(clauses, "")), notice=notice)]
            else:
                own = self._operator(node, view_by_name)
            own += map(_static_table, _subquery_tables(node))
            # A static table is listed once, also if the query reads it several times.
            found += [o for o in own if o.name != _STATIC or o not in found]
        return tuple(found)

    def _unwritten(self, node: PlanNode) -> str:
        """Return a text about rows that a GROUP BY or DISTINCT never returns; empty if none."""
        time = event_time_column(node)
        if time is None or time.window or time.session:
            return ""
        views = (self._views[name] for name in node.streams)
        nullable = any(
            c.nullable for view in views for c in view.columns if c.name == view.event_time
        )
        known = sequence(node.inputs[0].node.constraints().toSeq())
        required = any(
            class_name(one) == "IsNotNull" and one.child().semanticEquals(time.expression)
            for one in known
        )
        return f"rows without {time.sql} are never written" if nullable and not required else ""

    def _group_clauses(self) -> Iterator[str]:
        """Yield the text of each GROUP BY or DISTINCT, topmost first; nothing if unknown."""
        groups = [node for node in self._plan.walk() if node.groups]
        if len(groups) != sum(node.groups for node in self._optimised.walk()):
            return
        for node in groups:
            span = span_of(node.node)
            yield " ".join(self._request.text[slice(*span)].split()) if span else ""

    def _operator(
        self, node: PlanNode, view_by_name: Mapping[str, StreamView]
    ) -> list[Operator]:
        """Return the operator of a node; empty if EXPLAIN does not list the node."""
        if node.reads:
            view = view_by_name.get(node.reads)
            return [_static_table(node.reads) if view is None else _stream(view)]
        if node.joins_streams:
            return [_stream_join(self._planner.stream_join(node))]
        if node.streaming and node.kind == "Join":
            return [Operator(name="join", detail=join_detail(node, self._planner.keys(node)))]
        return [Operator(name="union")] if node.streaming and node.kind == "Union" else []


def _group(node: PlanNode, clause: str) -> Operator:
    """Return the operator of a GROUP BY or DISTINCT; ``clause`` is its text, if known."""
    time = event_time_column(node)
    until = NEVER if time is None else time.until
    columns = ", ".join(column.sql for column in group_columns(node))
    if not columns:
        return Operator(name="aggregate", detail="all rows", keeps="one row", until=until)
    if clause.upper().startswith("SELECT DISTINCT"):
        return Operator(
            name="distinct", detail=columns, keeps="one row per distinct row", until=until
        )
    plain = clause.upper().startswith("GROUP BY") and not _ORDINAL.search(clause)
    return Operator(
        name="aggregate",
        detail=shown(clause) if plain else f"GROUP BY {columns}",
        keeps="one row per group",
        until=until,
    )


def _subquery_tables(node: PlanNode) -> list[str]:
    """Return the static tables that subqueries of a node read."""
    plans = (read_plan(subquery) for subquery in sequence(node.node.subqueries()))
    return [leaf.reads for plan in plans for leaf in plan.walk() if leaf.reads]


def _static_table(name: str) -> Operator:
    return Operator(name=_STATIC, detail=name)


def _stream(view: StreamView) -> Operator:
    time = "no event time"
    if view.event_time is not None:
        time = f"event time {view.event_time}, delay {interval_text(view.delay_ms)}"
    columns = f"columns {', '.join(view.needed)}" if view.needed else "no columns"
    return Operator(name="stream", detail=f"{table_of(view.view)}, {time}, {columns}")


def _stream_join(join: StreamJoin) -> Operator:
    return Operator(
        name="join", detail=join.detail, keeps="rows of both sides", until=join.until
    )
