"""The analysis of streaming queries by a real Spark."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from penstock.errors import Code, SelectError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.job import Operator, StreamingQuery, StreamView, TableRef
from penstock.model.job_kinds import OutputMode
from penstock.model.query import Lookup, StreamRequest
from penstock.model.schema import Column, Primitive
from penstock.spark.executor import SparkExecutor
from penstock.streaming.analysis import StreamAnalyzer, prepare
from penstock.streaming.logical import Planner, read_plan
from penstock.streaming.query import QuerySettings, StreamSession

pytestmark = pytest.mark.integration

THIS_MODULE = __name__
APPEND, UPDATE = OutputMode.APPEND, OutputMode.UPDATE
HOUR = timedelta(hours=1)
COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="ts", type=Primitive.TIMESTAMP),
    Column(name="k", type=Primitive.STRING),
    Column(name="v", type=Primitive.DOUBLE),
)
# The view n__4 has no watermark; a__1 and a__3 read the same table.
VIEWS = tuple(
    StreamView(split=split, view=view, columns=COLUMNS, event_time=time, delay_ms=300_000)
    for split, view, time in (
        ("s1", "a__1", "ts"),
        ("s2", "b__2", "ts"),
        ("s3", "a__3", "ts"),
        ("s4", "n__4", None),
    )
)
DIM = Lookup(
    table=TableRef(name="dim", id="1", location="/nowhere/dim"),
    version=3,
    size_bytes=0,
    columns=(
        Column(name="id", type=Primitive.BIGINT),
        Column(name="name", type=Primitive.STRING),
    ),
    files=(),
)


# Without type hints, because pyspark would interpret them as hints for pandas.
@udf(LongType())
def doubled(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return value * 2


@udf(LongType())
def unstable(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return value


unstable = unstable.asNondeterministic()


def find_lookup(name: str) -> Lookup:
    if name.rpartition(".")[2] != "dim":
        raise UserError(f'table "{name}" does not exist', code=Code.META_NOT_FOUND_ERR)
    return DIM


def request(
    text: str, *, output: OutputMode | None = None, ttl: timedelta | None = None
) -> StreamRequest:
    return StreamRequest(
        text=text,
        views=tuple(view for view in VIEWS if view.view in text),
        output=output,
        state_ttl=ttl,
        parallelism=2,
        time_zone="UTC",
        python_udfs=THIS_MODULE,
    )


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def analyzer(spark: SparkExecutor, scratch: Path) -> StreamAnalyzer:
    return StreamAnalyzer(spark, scratch=scratch)


def running_queries(spark: SparkExecutor) -> int:
    state = spark.running().sessions()._jsparkSession.sharedState()
    return int(state.activeStreamingQueries().size())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query that must work, and the expected results of its analysis."""

    text: str
    outputs: str
    # The needed columns of each view.
    needed: str
    # Each operator: name, detail, keeps, until; separated by bars.
    operators: Sequence[str]
    output: OutputMode = APPEND
    key: tuple[str, ...] = ()
    requested: OutputMode | None = None
    ttl: timedelta | None = None
    lookups: tuple[str, ...] = ()
    uses_now: bool = False


def stream(table: str, columns: str) -> str:
    return f"stream|{table}, event time ts, delay 5 minutes, columns {columns}||"


WINDOW_END = "one row per group|the watermark passes the end of the window"
SESSION_END = "one row per group|the watermark passes the end of the session"
FOREVER = "one row per group|never"
JOINED = (
    "a.id = b.id|rows of both sides"
    "|the watermark passes a.ts + 10 minutes (left side) or b.ts (right side)"
)
WITHIN_TTL = (
    "a.id = b.id|rows of both sides"
    "|the watermark passes a.ts + 1 hour (left side) or b.ts + 1 hour (right side)"
)
# Parts of queries that are written as <name>.
PARTS = {
    "count": "SELECT k, count(*) c FROM a__1 GROUP BY k",
    "join": "SELECT a.id FROM a__1 a JOIN b__2 b ON",
    "minutes": "SELECT window(ts, '1 minute') w, k, count(*) c FROM a__1 "
    "GROUP BY window(ts, '1 minute'), k",
    "within": "b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES",
}


def whole(text: str) -> str:
    for name, part in PARTS.items():
        text = text.replace(f"<{name}>", part)
    return text


def outer(kind: str) -> Case:
    text = "SELECT a.id, b.v FROM a__1 a <kind> JOIN b__2 b ON a.id = b.id AND <within>"
    return Case(
        text=text.replace("<kind>", kind),
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts; b__2: id ts v",
        operators=(
            f"join|{kind} OUTER on {JOINED}",
            stream("a", "id, ts"),
            stream("b", "id, ts, v"),
        ),
    )


CASES = {
    "projection and filter": Case(
        text="SELECT id, upper(k) u FROM a__1 WHERE v > 1",
        outputs="id BIGINT, u STRING",
        needed="a__1: id ts k v",
        operators=(stream("a", "id, ts, k, v"),),
    ),
    "tumbling window": Case(
        text="<minutes>",
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, k STRING, c BIGINT",
        needed="a__1: ts k",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute'), k|{WINDOW_END}",
            stream("a", "ts, k"),
        ),
    ),
    "sliding window with HAVING": Case(
        text="SELECT window.end e, count(*) c FROM a__1 "
        "GROUP BY window(ts, '10 minutes', '5 minutes') HAVING count(*) > 1",
        outputs="e TIMESTAMP, c BIGINT",
        needed="a__1: ts",
        operators=(
            f"aggregate|GROUP BY window(ts, '10 minutes', '5 minutes')|{WINDOW_END}",
            stream("a", "ts"),
        ),
    ),
    "session window": Case(
        text="SELECT k, session_window.start s, sum(v) t FROM a__1 "
        "GROUP BY k, session_window(ts, '5 minutes')",
        outputs="k STRING, s TIMESTAMP, t DOUBLE",
        needed="a__1: ts k v",
        operators=(
            f"aggregate|GROUP BY k, session_window(ts, '5 minutes')|{SESSION_END}",
            stream("a", "ts, k, v"),
        ),
    ),
    "inner join": Case(
        text="SELECT a.id, b.v FROM a__1 a JOIN b__2 b ON a.id = b.id AND <within>",
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts; b__2: id ts v",
        operators=(
            f"join|INNER on {JOINED}",
            stream("a", "id, ts"),
            stream("b", "id, ts, v"),
        ),
    ),
    "inner join with the condition in WHERE": Case(
        text="SELECT a.id, b.v FROM a__1 a, b__2 b WHERE a.id = b.id "
        "AND b.ts >= a.ts - INTERVAL 90 SECONDS AND b.ts < a.ts + INTERVAL 1 DAY",
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts; b__2: id ts v",
        operators=(
            "join|INNER on a.id = b.id|rows of both sides"
            "|the watermark passes a.ts + 1 day (left side) or b.ts + 90 seconds (right side)",
            stream("a", "id, ts"),
            stream("b", "id, ts, v"),
        ),
    ),
    "left join": outer("LEFT"),
    "right join": outer("RIGHT"),
    "full join": outer("FULL"),
    "semi join": Case(
        text="SELECT a.id FROM a__1 a LEFT SEMI JOIN b__2 b ON a.id = b.id AND <within>",
        outputs="id BIGINT",
        needed="a__1: id ts; b__2: id ts",
        operators=(
            f"join|LEFT SEMI on {JOINED}",
            stream("a", "id, ts"),
            stream("b", "id, ts"),
        ),
    ),
    "join on equal event times": Case(
        text="SELECT a.id FROM a__1 a JOIN b__2 b ON a.ts = b.ts AND a.v = b.v",
        outputs="id BIGINT",
        needed="a__1: id ts v; b__2: ts v",
        operators=(
            "join|INNER on a.ts = b.ts AND a.v = b.v|rows of both sides"
            "|the watermark passes a.ts",
            stream("a", "id, ts, v"),
            stream("b", "ts, v"),
        ),
    ),
    "join with state.ttl": Case(
        text="SELECT a.id, b.v FROM a__1 a JOIN b__2 b ON a.id = b.id",
        ttl=HOUR,
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts; b__2: id ts v",
        operators=(
            f"join|INNER on {WITHIN_TTL}",
            stream("a", "id, ts"),
            stream("b", "id, ts, v"),
        ),
    ),
    "join with state.ttl in WITH, then a window": Case(
        text="WITH j AS (SELECT a.ts FROM a__1 a JOIN b__2 b ON a.id = b.id) "
        "SELECT window(ts, '1 minute') w, count(*) c FROM j GROUP BY window(ts, '1 minute')",
        ttl=HOUR,
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, c BIGINT",
        needed="a__1: id ts; b__2: id ts",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute')|{WINDOW_END}",
            f"join|INNER on {WITHIN_TTL}",
            stream("a", "id, ts"),
            stream("b", "id, ts"),
        ),
    ),
    "three streams with state.ttl": Case(
        text="SELECT a.id FROM a__1 a JOIN b__2 b ON a.id = b.id JOIN a__3 c ON c.id = a.id",
        ttl=HOUR,
        outputs="id BIGINT",
        needed="a__1: id ts; b__2: id ts; a__3: id ts",
        operators=(
            "join|INNER on a.id = c.id|rows of both sides"
            "|the watermark passes a.ts + 1 hour (left side) or c.ts + 1 hour (right side)",
            f"join|INNER on {WITHIN_TTL}",
            stream("a", "id, ts"),
            stream("b", "id, ts"),
            stream("a", "id, ts"),
        ),
    ),
    "join on the same window": Case(
        text="SELECT a.id, b.v FROM (SELECT *, window(ts, '1 minute') w FROM a__1) a "
        "LEFT JOIN (SELECT *, window(ts, '1 minute') w FROM b__2) b "
        "ON a.w = b.w AND a.id = b.id",
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts; b__2: id ts v",
        operators=(
            "join|LEFT OUTER on a.w = b.w AND a.id = b.id|rows of both sides"
            "|the watermark passes the end of the window",
            stream("a", "id, ts"),
            stream("b", "id, ts, v"),
        ),
    ),
    "join of two windowed counts": Case(
        text="SELECT x.w, x.c, y.c d FROM "
        "(SELECT window(ts, '1 minute') w, count(*) c FROM a__1 GROUP BY 1) x JOIN "
        "(SELECT window(ts, '1 minute') w, count(*) c FROM b__2 GROUP BY 1) y ON x.w = y.w",
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, c BIGINT, d BIGINT",
        needed="a__1: ts; b__2: ts",
        operators=(
            "join|INNER on x.w = y.w|rows of both sides"
            "|the watermark passes the end of the window",
            f"aggregate|GROUP BY window|{WINDOW_END}",
            stream("a", "ts"),
            f"aggregate|GROUP BY window|{WINDOW_END}",
            stream("b", "ts"),
        ),
    ),
    "one table streamed twice": Case(
        text="SELECT p.id, q.v FROM a__1 p JOIN a__3 q "
        "ON p.k = q.k AND q.ts BETWEEN p.ts AND p.ts + INTERVAL 10 MINUTES",
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts k; a__3: ts k v",
        operators=(
            "join|INNER on p.k = q.k|rows of both sides"
            "|the watermark passes p.ts + 10 minutes (left side) or q.ts (right side)",
            stream("a", "id, ts, k"),
            stream("a", "ts, k, v"),
        ),
    ),
    "joins with static tables": Case(
        text="SELECT a.id, d.name FROM a__1 a LEFT JOIN dim d ON a.id = d.id "
        "WHERE a.k IN (SELECT name FROM dim WHERE id > (SELECT min(id) FROM dim))",
        outputs="id BIGINT, name STRING",
        needed="a__1: id ts k",
        lookups=("dim",),
        operators=(
            "join|LEFT OUTER on a.id = d.id||",
            "join|LEFT SEMI on a.k = dim.name||",
            stream("a", "id, ts, k"),
            "static table|dim||",
        ),
    ),
    "a static side with ORDER BY, LIMIT, DISTINCT and OVER": Case(
        text="SELECT a.id, d.r FROM a__1 a JOIN (SELECT DISTINCT id, row_number() OVER "
        "(ORDER BY name) r FROM dim ORDER BY id LIMIT 3) d ON a.id = d.id",
        outputs="id BIGINT, r INT",
        needed="a__1: id ts",
        lookups=("dim",),
        operators=(
            "join|INNER on a.id = d.id||",
            stream("a", "id, ts"),
            "static table|dim||",
        ),
    ),
    "DISTINCT with the event time": Case(
        text="SELECT DISTINCT id, ts FROM a__1",
        outputs="id BIGINT, ts TIMESTAMP",
        needed="a__1: id ts",
        operators=(
            "distinct|a.id, a.ts|one row per distinct row|the watermark passes a.ts|"
            "rows without a.ts are never written",
            stream("a", "id, ts"),
        ),
    ),
    "DISTINCT in update output": Case(
        text="SELECT DISTINCT k, id FROM a__1",
        requested=UPDATE,
        output=UPDATE,
        key=("k", "id"),
        outputs="k STRING, id BIGINT",
        needed="a__1: id ts k",
        operators=(
            "distinct|a.k, a.id|one row per distinct row|never",
            stream("a", "id, ts, k"),
        ),
    ),
    "a window over a window": Case(
        text="SELECT window(w, '1 hour') h, sum(c) s FROM (<minutes>) "
        "GROUP BY window(w, '1 hour')",
        outputs="h STRUCT<start: TIMESTAMP, end: TIMESTAMP>, s BIGINT",
        needed="a__1: ts k",
        operators=(
            f"aggregate|GROUP BY window(w, '1 hour')|{WINDOW_END}",
            f"aggregate|GROUP BY window(ts, '1 minute'), k|{WINDOW_END}",
            stream("a", "ts, k"),
        ),
    ),
    "a join, then a window": Case(
        text="SELECT window(a.ts, '1 minute') w, count(*) c FROM a__1 a JOIN b__2 b "
        "ON a.id = b.id AND <within> GROUP BY window(a.ts, '1 minute')",
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, c BIGINT",
        needed="a__1: id ts; b__2: id ts",
        operators=(
            f"aggregate|GROUP BY window(a.ts, '1 minute')|{WINDOW_END}",
            f"join|INNER on {JOINED}",
            stream("a", "id, ts"),
            stream("b", "id, ts"),
        ),
    ),
    "an inner join, then a key": Case(
        text="SELECT a.k, sum(b.v) s FROM a__1 a JOIN b__2 b ON a.id = b.id AND <within> "
        "GROUP BY a.k",
        output=UPDATE,
        key=("k",),
        outputs="k STRING, s DOUBLE",
        needed="a__1: id ts k; b__2: id ts v",
        operators=(
            f"aggregate|GROUP BY a.k|{FOREVER}",
            f"join|INNER on {JOINED}",
            stream("a", "id, ts, k"),
            stream("b", "id, ts, v"),
        ),
    ),
    "UNION ALL": Case(
        text="SELECT id, ts FROM a__1 UNION ALL SELECT id, ts FROM b__2",
        outputs="id BIGINT, ts TIMESTAMP",
        needed="a__1: id ts; b__2: id ts",
        operators=("union|||", stream("a", "id, ts"), stream("b", "id, ts")),
    ),
    "a window over UNION ALL": Case(
        text="SELECT window(ts, '1 minute') w, count(*) c FROM "
        "(SELECT * FROM a__1 UNION ALL SELECT * FROM b__2) GROUP BY window(ts, '1 minute')",
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, c BIGINT",
        needed="a__1: ts; b__2: ts",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute')|{WINDOW_END}",
            "union|||",
            stream("a", "ts"),
            stream("b", "ts"),
        ),
    ),
    "WITH": Case(
        text="WITH x AS (<minutes>) SELECT w.start s, c FROM x WHERE k > 'a'",
        outputs="s TIMESTAMP, c BIGINT",
        needed="a__1: ts k",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute'), k|{WINDOW_END}",
            stream("a", "ts, k"),
        ),
    ),
    "WITH used twice": Case(
        text="WITH x AS (SELECT * FROM a__1) "
        "SELECT p.id, q.v FROM x p JOIN x q ON p.id = q.id AND p.ts = q.ts",
        outputs="id BIGINT, v DOUBLE",
        needed="a__1: id ts v",
        operators=(
            "join|INNER on p.id = q.id AND p.ts = q.ts|rows of both sides"
            "|the watermark passes p.ts",
            stream("a", "id, ts, v"),
            stream("a", "id, ts, v"),
        ),
    ),
    "a Python function": Case(
        text="SELECT k, sum(doubled(id)) s FROM a__1 GROUP BY k",
        output=UPDATE,
        key=("k",),
        outputs="k STRING, s BIGINT",
        needed="a__1: id ts k",
        operators=(f"aggregate|GROUP BY k|{FOREVER}", stream("a", "id, ts, k")),
    ),
    "a key": Case(
        text="SELECT count(*) c, upper(k) AS name FROM a__1 GROUP BY upper(k)",
        output=UPDATE,
        key=("name",),
        outputs="c BIGINT, name STRING",
        needed="a__1: ts k",
        operators=("aggregate|GROUP BY upper(k)|one row per group|never", stream("a", "ts, k")),
    ),
    "a key that is renamed above the GROUP BY": Case(
        text="SELECT c + 1 AS more, x.k AS name FROM (<count>) x",
        output=UPDATE,
        key=("name",),
        outputs="more BIGINT, name STRING",
        needed="a__1: ts k",
        operators=(f"aggregate|GROUP BY k|{FOREVER}", stream("a", "ts, k")),
    ),
    "a global count": Case(
        text="SELECT count(*) c FROM a__1",
        output=UPDATE,
        outputs="c BIGINT",
        needed="a__1: ts",
        operators=("aggregate|all rows|one row|never", stream("a", "ts")),
    ),
    "a count without a watermark": Case(
        text="SELECT count(*) c FROM n__4",
        output=UPDATE,
        outputs="c BIGINT",
        needed="n__4:",
        operators=(
            "aggregate|all rows|one row|never",
            "stream|n, no event time, no columns||",
        ),
    ),
    "a window without a watermark": Case(
        text="SELECT window(ts, '1 minute') w, count(*) c FROM n__4 "
        "GROUP BY window(ts, '1 minute')",
        output=UPDATE,
        key=("w",),
        outputs="w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, c BIGINT",
        needed="n__4: ts",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute')|{FOREVER}",
            "stream|n, no event time, columns ts||",
        ),
    ),
    "a window in update output": Case(
        text="SELECT window.start s, k, count(*) c FROM a__1 "
        "GROUP BY window(ts, '1 minute'), k",
        requested=UPDATE,
        output=UPDATE,
        key=("s", "k"),
        outputs="s TIMESTAMP, k STRING, c BIGINT",
        needed="a__1: ts k",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute'), k|{WINDOW_END}",
            stream("a", "ts, k"),
        ),
    ),
    "the current time": Case(
        text="SELECT id FROM a__1 WHERE v > 0 OR current_date() > DATE'2000-01-01'",
        uses_now=True,
        outputs="id BIGINT",
        needed="a__1: id ts v",
        operators=(stream("a", "id, ts, v"),),
    ),
    "functions that change, in the outermost SELECT": Case(
        text="SELECT uuid() u, rand() r, w FROM (<minutes>)",
        outputs="u STRING, r DOUBLE, w STRUCT<start: TIMESTAMP, end: TIMESTAMP>",
        needed="a__1: ts k",
        operators=(
            f"aggregate|GROUP BY window(ts, '1 minute'), k|{WINDOW_END}",
            stream("a", "ts, k"),
        ),
    ),
    "PIVOT with the event time": Case(
        text="SELECT * FROM (SELECT k, v, ts FROM a__1) PIVOT (sum(v) FOR k IN ('x', 'y'))",
        outputs="ts TIMESTAMP, x DOUBLE, y DOUBLE",
        needed="a__1: ts k v",
        operators=(
            "aggregate|GROUP BY ts|one row per group|the watermark passes ts|"
            "rows without ts are never written",
            "aggregate|GROUP BY ts, k|one row per group|the watermark passes ts|"
            "rows without ts are never written",
            stream("a", "ts, k, v"),
        ),
    ),
}


def operator(text: str) -> Operator:
    name, detail, keeps, until, *notice = text.split("|")
    return Operator(name=name, detail=detail, keeps=keeps, until=until, notice="".join(notice))


def analysed(analyzer: StreamAnalyzer, case: Case) -> StreamingQuery:
    given = request(whole(case.text), output=case.requested, ttl=case.ttl)
    return analyzer.analyse(given, find_lookup=find_lookup)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_query_is_analysed_and_runs(
    case: Case, analyzer: StreamAnalyzer, scratch: Path
) -> None:
    query = analysed(analyzer, case)

    assert (query.output, query.key) == (case.output, case.key)
    assert ", ".join(f"{c.name} {c.type.sql}" for c in query.outputs) == case.outputs
    needed = "; ".join(f"{v.view}: {' '.join(v.needed)}".strip() for v in query.views)
    assert needed == case.needed
    assert query.operators == tuple(operator(text) for text in case.operators)
    assert tuple(table.name for table in query.lookups) == case.lookups
    assert (query.uses_now, query.state_ttl) == (case.uses_now, case.ttl)
    assert (query.text, query.parallelism) == (whole(case.text), 2)
    assert from_text(StreamingQuery, to_text(query)) == query
    assert not scratch.exists()
    lookups = [DIM] if case.lookups else []
    analyzer.try_epoch(query, time_zone="UTC", python_udfs=THIS_MODULE, lookups=lookups)
    assert not [*scratch.iterdir()]


def test_a_name_with_a_database_becomes_the_name_of_the_table(analyzer: StreamAnalyzer) -> None:
    text = "SELECT a.id FROM a__1 a JOIN dim d ON a.id = d.id JOIN shop.dim e ON a.id = e.id"

    query = analyzer.analyse(request(text), find_lookup=find_lookup)

    assert query.text == text.replace("shop.dim", "dim     ")
    assert query.lookups == (DIM.joined_table,)


def test_the_frame_of_a_run_has_the_bounds_of_state_ttl(
    analyzer: StreamAnalyzer, spark: SparkExecutor, tmp_path: Path
) -> None:
    query = analysed(analyzer, CASES["join with state.ttl"])
    settings = QuerySettings(parallelism=2)
    session = StreamSession(spark.running().sessions(), settings, checkpoint=tmp_path)

    frame = prepare(session, query, lookups={})

    planner = Planner(session.session)
    joins = [n for n in read_plan(planner.optimised(frame)).walk() if n.joins_streams]
    assert [planner.stream_join(join).holds_ms for join in joins] == [(3_600_000, 3_600_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A query that must be refused, with a part of the message and of the hint."""

    text: str
    message: str
    hint: str
    # The text at which the error is located; empty: no place.
    at: str = ""
    output: OutputMode | None = None
    ttl: timedelta | None = None


STATE = "in or below GROUP BY, DISTINCT or a join of streams"
BOUND = "the join of the streams a and b has no bound for both event times"
WATERMARK = "STREAM n WATERMARK ts DELAY OF INTERVAL"
IN_SUBQUERY = "STREAM cannot be used in a subquery of an expression"
NEVER = "the query can never return a row of a stream"


def over(construct: str, text: str, hint: str, at: str = "") -> Refused:
    message = f"{construct} cannot be used over a stream"
    return Refused(text=text, message=message, hint=hint, at=at)


def static_join(text: str, side: str, kind: str) -> Refused:
    return Refused(
        text=f"FROM {text} ON a.id = d.id SELECT 1 AS one",
        message=f"a stream cannot be the {side} side of a {kind} JOIN with a static table",
        hint="stream LEFT JOIN t ON",
    )


REFUSED = {
    "LIMIT": over("LIMIT", "SELECT id FROM a__1 LIMIT 3", "SELECT over", "LIMIT 3"),
    "LIMIT of a subquery": over(
        "LIMIT", "SELECT id FROM (SELECT id FROM a__1 LIMIT 3) WHERE id > 1", "SELECT over"
    ),
    "OFFSET": over("OFFSET", "SELECT id FROM a__1 OFFSET 3", "SELECT over", "OFFSET 3"),
    "ORDER BY": over(
        "ORDER BY", "SELECT id FROM a__1 ORDER BY id", "SELECT over", "ORDER BY id"
    ),
    "ORDER BY of a subquery": over(
        "ORDER BY", "SELECT id FROM (SELECT id FROM a__1 ORDER BY id)", "SELECT over"
    ),
    "SORT BY": over("SORT BY", "SELECT id FROM a__1 SORT BY id", "SELECT over", "SORT BY id"),
    "TABLESAMPLE": over(
        "TABLESAMPLE",
        "SELECT * FROM (SELECT id FROM a__1) TABLESAMPLE (10 PERCENT)",
        "SELECT over",
    ),
    "a window function": over(
        "a window function (OVER)",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY ts) r FROM a__1",
        "max_by(x, ts)",
    ),
    "EXCEPT": over(
        "EXCEPT",
        "SELECT id FROM a__1 EXCEPT SELECT id FROM b__2",
        "LEFT JOIN with a time bound",
    ),
    "EXCEPT a static table": over(
        "EXCEPT", "SELECT id FROM a__1 EXCEPT SELECT id FROM dim", "NOT EXISTS"
    ),
    "INTERSECT": over(
        "INTERSECT", "SELECT id FROM a__1 INTERSECT SELECT id FROM b__2", "JOIN with a time"
    ),
    "UNION DISTINCT": over(
        "UNION without ALL", "SELECT id FROM a__1 UNION SELECT id FROM b__2", "UNION ALL"
    ),
    "UNION ALL with a static table": Refused(
        text="SELECT id FROM a__1 UNION ALL SELECT id FROM dim",
        message="UNION ALL cannot combine a stream with a static table",
        hint="Read both tables with STREAM",
    ),
    "WITH RECURSIVE": over(
        "WITH RECURSIVE",
        "WITH RECURSIVE r AS (SELECT id FROM a__1 UNION ALL SELECT id + 1 FROM r WHERE id < 3) "
        "SELECT id FROM r",
        "static tables",
    ),
    "ROLLUP": over(
        "ROLLUP, CUBE or GROUPING SETS",
        "SELECT k, count(*) c FROM a__1 GROUP BY ROLLUP(k)",
        "one streaming table for each",
    ),
    "count(DISTINCT …)": over(
        "an aggregate function with DISTINCT",
        "SELECT count(DISTINCT k) c FROM a__1",
        "approx_count_distinct",
    ),
    "sum(DISTINCT …)": over(
        "an aggregate function with DISTINCT",
        "SELECT k, 1 + sum(DISTINCT v) FILTER (WHERE v > 1) s FROM a__1 GROUP BY k",
        "collect_set",
    ),
    "first()": over("first()", "SELECT k, first(v) f FROM a__1 GROUP BY k", "max_by"),
    "last_value()": over(
        "last_value()", "SELECT k, last_value(v) f FROM a__1 GROUP BY k", "max_by"
    ),
    "any_value()": over(
        "any_value()", "SELECT k, any_value(v) f FROM a__1 GROUP BY k", "min_by"
    ),
    "shuffle()": Refused(
        text="SELECT k, shuffle(collect_list(v)) s FROM a__1 GROUP BY k",
        message=f"shuffle() cannot be used {STATE}",
        hint="outermost SELECT",
    ),
    "rand() below GROUP BY": Refused(
        text="SELECT r, count(*) c FROM (SELECT floor(rand() * 3) r FROM a__1) GROUP BY r",
        message=f"rand() cannot be used {STATE}",
        hint="outermost SELECT",
        at="SELECT floor",
    ),
    "uuid() in GROUP BY": Refused(
        text="SELECT k, count(*) c, uuid() u FROM a__1 GROUP BY k",
        message=f"uuid() cannot be used {STATE}",
        hint="outermost SELECT",
    ),
    "uuid() below a join": Refused(
        text="SELECT a.u FROM (SELECT *, uuid() u FROM a__1) a JOIN b__2 b "
        "ON a.id = b.id AND <within>",
        message=f"uuid() cannot be used {STATE}",
        hint="outermost SELECT",
    ),
    "a Python function that is not deterministic": Refused(
        text="SELECT unstable(id) u, count(*) c FROM a__1 GROUP BY 1",
        message=f"unstable() cannot be used {STATE}",
        hint="outermost SELECT",
    ),
    "monotonically_increasing_id()": over(
        "monotonically_increasing_id()",
        "SELECT monotonically_increasing_id() i FROM a__1",
        "uuid()",
    ),
    "spark_partition_id()": over(
        "spark_partition_id()", "SELECT spark_partition_id() i FROM a__1", "uuid()"
    ),
    "a join without an equality": Refused(
        text="<join> a.id > b.id AND <within>",
        message="the join of the streams a and b has no equality",
        hint="a.id = b.id",
    ),
    "a join without a bound": Refused(
        text="<join> a.id = b.id", message=BOUND, hint='set "state.ttl"', at="JOIN b__2"
    ),
    "a join with a bound for one side": Refused(
        text="<join> a.id = b.id AND b.ts >= a.ts", message=BOUND, hint="BETWEEN"
    ),
    "a join with a bound that is not an event time": Refused(
        text="<join> a.id = b.id AND b.v BETWEEN a.v AND a.v + 1",
        message=BOUND,
        hint="BETWEEN",
    ),
    "a join whose sides do not return their event times": Refused(
        text="SELECT a.id FROM (SELECT id FROM a__1) a JOIN (SELECT id FROM b__2) b "
        "ON a.id = b.id",
        message=BOUND,
        hint="BETWEEN",
    ),
    "an outer join without a bound": Refused(
        text="SELECT a.id FROM a__1 a LEFT JOIN b__2 b ON a.id = b.id",
        message=BOUND,
        hint="window(ts, '10 minutes') of both sides.",
        at="LEFT JOIN",
    ),
    "an outer join with the bound in WHERE": Refused(
        text="SELECT a.id FROM a__1 a FULL JOIN b__2 b ON a.id = b.id WHERE <within>",
        message=BOUND,
        hint="to ON",
    ),
    "an outer join with one watermark": Refused(
        text="SELECT a.id FROM n__4 a LEFT JOIN b__2 b ON a.id = b.id AND a.ts = b.ts",
        message="a join of streams needs a watermark for the stream n",
        hint=WATERMARK,
    ),
    "an inner join with one watermark": Refused(
        text="SELECT a.id FROM a__1 a JOIN n__4 b ON a.id = b.id AND <within>",
        message="a join of streams needs a watermark for the stream n",
        hint="ALTER TABLE n SET WATERMARK FOR",
    ),
    "an anti join": Refused(
        text="SELECT a.id FROM a__1 a LEFT ANTI JOIN b__2 b ON a.id = b.id AND <within>",
        message="LEFT ANTI JOIN cannot join two streams",
        hint="IS NULL",
    ),
    "static LEFT JOIN stream": static_join("dim d LEFT JOIN a__1 a", "right", "LEFT OUTER"),
    "stream RIGHT JOIN static": static_join("a__1 a RIGHT JOIN dim d", "left", "RIGHT OUTER"),
    "stream FULL JOIN static": static_join("a__1 a FULL JOIN dim d", "left", "FULL OUTER"),
    "static LEFT SEMI JOIN stream": static_join(
        "dim d LEFT SEMI JOIN a__1 a", "right", "LEFT SEMI"
    ),
    "static LEFT ANTI JOIN stream": static_join(
        "dim d LEFT ANTI JOIN a__1 a", "right", "LEFT ANTI"
    ),
    "an outer join in update output": Refused(
        text="SELECT a.k, count(*) c FROM a__1 a LEFT JOIN b__2 b ON a.id = b.id AND <within> "
        "GROUP BY a.k",
        message="update output cannot be used with an outer join of two streams",
        hint="inner join",
    ),
    "DISTINCT without the event time": Refused(
        text="SELECT DISTINCT id FROM a__1",
        message="append output cannot be used with DISTINCT without an event time",
        hint="Add the event time",
    ),
    "DISTINCT without a watermark": Refused(
        text="SELECT DISTINCT id, ts FROM n__4",
        message="DISTINCT in append output needs a watermark for the stream n",
        hint=WATERMARK,
    ),
    "GROUP BY without event time in append output": Refused(
        text="<count>",
        output=APPEND,
        message="append output cannot be used with GROUP BY without an event time",
        hint='"output" = "update"',
        at="GROUP BY k",
    ),
    "GROUP BY of an expression of the event time in append output": Refused(
        text="SELECT date_trunc('hour', ts) h, count(*) c FROM a__1 GROUP BY 1",
        output=APPEND,
        message="append output cannot be used with GROUP BY without an event time",
        hint="window(ts, '10 minutes')",
    ),
    "a window without a watermark in append output": Refused(
        text="SELECT window(ts, '1 minute') w, count(*) c FROM n__4 GROUP BY 1",
        output=APPEND,
        message="GROUP BY in append output needs a watermark for the stream n",
        hint=WATERMARK,
    ),
    "a window over streams with and without a watermark": Refused(
        text="SELECT window(ts, '1 minute') w, count(*) c FROM "
        "(SELECT ts FROM a__1 UNION ALL SELECT ts FROM n__4) GROUP BY 1",
        message="GROUP BY with an event time needs a watermark for the stream n",
        hint=WATERMARK,
    ),
    "two event times": Refused(
        text="SELECT a.ts, b.ts t, count(*) c FROM a__1 a JOIN b__2 b "
        "ON a.id = b.id AND <within> GROUP BY a.ts, b.ts",
        message="GROUP BY has more than one event time: a.ts, b.ts",
        hint="max(…)",
    ),
    "a session window without another key": Refused(
        text="SELECT session_window(ts, '5 minutes') w, count(*) c FROM a__1 GROUP BY 1",
        message="session_window() cannot be the only column of GROUP BY",
        hint="another column",
    ),
    "a session window in update output": Refused(
        text="SELECT k, session_window(ts, '5 minutes') w, count(*) c FROM a__1 GROUP BY 1, 2",
        output=UPDATE,
        message="update output cannot be used with session_window()",
        hint='"output" = "append"',
    ),
    "an aggregate over an unwindowed aggregate": Refused(
        text="SELECT c, count(*) n FROM (<count>) GROUP BY c",
        message="GROUP BY in update output cannot be used over GROUP BY",
        hint="use a SELECT over this table",
    ),
    "an unwindowed aggregate over a windowed one": Refused(
        text="SELECT k, sum(c) s FROM (<minutes>) GROUP BY k",
        message="GROUP BY in update output cannot be used over GROUP BY",
        hint="read this table with STREAM",
    ),
    "DISTINCT over an unwindowed aggregate": Refused(
        text="SELECT DISTINCT c FROM (<count>)",
        output=APPEND,
        message="append output cannot be used with DISTINCT without an event time",
        hint="Add the event time",
    ),
    "a stream joined with an unwindowed aggregate": Refused(
        text="SELECT b.id, x.c FROM b__2 b JOIN (<count>) x ON b.k = x.k",
        message="a join of streams cannot be used over GROUP BY without an event time",
        hint="join this table without STREAM",
    ),
    "UNION ALL of unwindowed aggregates": Refused(
        text="<count> UNION ALL SELECT k, count(*) c FROM b__2 GROUP BY k",
        message="append output cannot be used with GROUP BY without an event time",
        hint="a streaming table for each",
    ),
    "UNION ALL in update output": Refused(
        text="<count> UNION ALL SELECT k, count(*) c FROM b__2 GROUP BY k",
        output=UPDATE,
        message="update output needs GROUP BY as the topmost operator with state",
        hint='"output" = "append"',
    ),
    "update output without state": Refused(
        text="SELECT id FROM a__1",
        output=UPDATE,
        message="update output needs GROUP BY as the topmost operator with state",
        hint='"output" = "append"',
    ),
    "update output of a join": Refused(
        text="<join> a.id = b.id AND <within>",
        output=UPDATE,
        message="update output needs GROUP BY as the topmost operator with state",
        hint='"output" = "append"',
    ),
    "HAVING in update output": Refused(
        text="<count> HAVING count(*) > 1",
        message="update output cannot be used with HAVING or WHERE over the GROUP BY",
        hint="in a SELECT over the streaming table",
    ),
    "WHERE over the GROUP BY": Refused(
        text="SELECT k, c FROM (<count>) WHERE c > 1",
        message="update output cannot be used with HAVING or WHERE over the GROUP BY",
        hint="in a SELECT over the streaming table",
    ),
    "a static join over the GROUP BY": Refused(
        text="SELECT x.k, d.id FROM (<count>) x JOIN dim d ON d.name = x.k",
        message="update output cannot be used with a join over the GROUP BY",
        hint="in a SELECT over the streaming table",
    ),
    "explode over the GROUP BY": Refused(
        text="SELECT k, e FROM (<count>) LATERAL VIEW explode(array(1, 2)) t AS e",
        message="update output cannot be used with explode() or LATERAL VIEW over the GROUP BY",
        hint="in a SELECT over the streaming table",
    ),
    "a key that is not in the SELECT": Refused(
        text="SELECT upper(k) u, count(*) c FROM a__1 GROUP BY k",
        message="update output needs the GROUP BY column a.k in the SELECT",
        hint="Add a.k",
    ),
    "a key that is lost above the GROUP BY": Refused(
        text="SELECT c FROM (<count>)",
        message="update output needs the GROUP BY column a.k in the SELECT",
        hint="Add a.k",
    ),
    "state.ttl without a join": Refused(
        text="SELECT id FROM a__1",
        ttl=HOUR,
        message='"state.ttl" needs an inner join of two streams',
        hint="Remove",
    ),
    "state.ttl of a GROUP BY": Refused(
        text="<count>",
        ttl=HOUR,
        message='"state.ttl" does not apply to a GROUP BY',
        hint="window(ts, …)",
    ),
    "state.ttl of an outer join": Refused(
        text="SELECT a.id FROM a__1 a LEFT JOIN b__2 b ON a.id = b.id",
        ttl=HOUR,
        message='"state.ttl" can be used only with inner joins',
        hint="BETWEEN",
    ),
    "state.ttl of a join with a bound": Refused(
        text="<join> a.id = b.id AND <within>",
        ttl=HOUR,
        message='"state.ttl" cannot be used with a join that has a time bound',
        hint="Remove",
    ),
    "state.ttl of a join without an equality": Refused(
        text="<join> a.id > b.id",
        ttl=HOUR,
        message="the join of the streams a and b has no equality",
        hint="a.id = b.id",
    ),
    "state.ttl without an event time": Refused(
        text="SELECT a.id FROM n__4 a JOIN b__2 b ON a.id = b.id",
        ttl=HOUR,
        message='"state.ttl" needs the event time of both sides of a join',
        hint="Define a watermark",
    ),
    "IN with a stream": Refused(
        text="SELECT id FROM a__1 WHERE id IN (SELECT id FROM b__2)",
        message=IN_SUBQUERY,
        hint="without STREAM",
    ),
    "EXISTS with a stream": Refused(
        text="SELECT id FROM a__1 WHERE EXISTS (SELECT 1 FROM b__2 b WHERE b.id = a__1.id)",
        message=IN_SUBQUERY,
        hint="without STREAM",
    ),
    "a scalar subquery of a stream": Refused(
        text="SELECT id, (SELECT max(v) FROM b__2) m FROM a__1",
        message=IN_SUBQUERY,
        hint="without STREAM",
    ),
    "LATERAL with a stream": Refused(
        text="SELECT a.id FROM a__1 a, LATERAL (SELECT v FROM b__2 b WHERE b.id = a.id) l",
        message=IN_SUBQUERY,
        hint="without STREAM",
    ),
    "a static table filtered by a stream": Refused(
        text="SELECT id FROM dim WHERE id IN (SELECT id FROM b__2)",
        message=IN_SUBQUERY,
        hint="without STREAM",
    ),
    "WHERE false": Refused(
        text="SELECT id FROM a__1 WHERE false", message=NEVER, hint="current date"
    ),
    "ON false": Refused(text="<join> false", message=NEVER, hint="current date"),
    "LATERAL that would read the stream again": Refused(
        text="SELECT a.id FROM a__1 a, LATERAL (SELECT max(name) FROM dim WHERE dim.id < a.id)",
        message="a subquery that depends on rows of a stream would read the stream again",
        hint="equalities only",
    ),
    "a stream that is not used": Refused(
        text="WITH x AS (SELECT id FROM b__2) SELECT id FROM a__1",
        message="STREAM b is not used by the query",
        hint="WITH",
    ),
    "two outputs with one name": Refused(
        text="SELECT id, v AS ID FROM a__1",
        message='output "ID" of the query occurs more than once',
        hint="AS b_id",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_query_is_refused(case: Refused, analyzer: StreamAnalyzer, scratch: Path) -> None:
    text = whole(case.text)
    given = request(text, output=case.output, ttl=case.ttl)

    with pytest.raises(UserError, match=re.escape(case.message)) as refused:
        analyzer.analyse(given, find_lookup=find_lookup)

    assert refused.value.code is Code.NOT_SUPPORTED_ERR
    assert case.hint in refused.value.hint
    if case.at:
        assert isinstance(refused.value, SelectError)
        assert text[refused.value.offset or 0 :].startswith(case.at)
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("text", "code", "message", "at"),
    [
        ("SELECT id,\n nope FROM a__1", Code.TYPE_ERR, "`nope` cannot be resolved", "nope"),
        ("SELECT id FROM a__1 WHERE (", Code.TYPE_ERR, "Syntax error", ""),
        ("DROP TABLE a__1", Code.TYPE_ERR, "Syntax error", "DROP"),
        ("SELECT id FROM a__1, x.y", Code.META_NOT_FOUND_ERR, '"x.y" does not exist', "x.y"),
        ("SELECT INTERVAL 1 DAY i FROM a__1", Code.TYPE_ERR, "not a column type", ""),
    ],
)
def test_an_error_of_spark_has_its_place_in_the_text(
    text: str, code: Code, message: str, at: str, analyzer: StreamAnalyzer
) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        analyzer.analyse(request(text), find_lookup=find_lookup)

    assert refused.value.code is code
    if at:
        assert isinstance(refused.value, SelectError)
        assert text[refused.value.offset or 0 :].startswith(at)


def test_the_event_time_must_be_a_timestamp(analyzer: StreamAnalyzer) -> None:
    given = request("SELECT id FROM a__1")
    local = Column(name="ts", type=Primitive.TIMESTAMP_NTZ)
    view = replace(given.views[0], columns=(COLUMNS[0], local))

    with pytest.raises(
        UserError, match="of the stream a must have the type TIMESTAMP"
    ) as error:
        analyzer.analyse(replace(given, views=(view,)), find_lookup=find_lookup)

    assert error.value.code is Code.TYPE_ERR


def unchecked(analyzer: StreamAnalyzer, text: str, output: OutputMode) -> StreamingQuery:
    """Return a query whose text was not analysed."""
    known = analyzer.analyse(request("SELECT id, ts FROM a__1"), find_lookup=find_lookup)
    return replace(known, text=whole(text), output=output)


@pytest.mark.parametrize(
    ("text", "output", "message"),
    [
        # Spark refuses the first two when the query starts, and the others when it plans.
        ("SELECT id FROM a__1 ORDER BY id", APPEND, "Sorting is not supported"),
        ("<count>", APPEND, "Invalid streaming output mode: append"),
        (
            "SELECT session_window(ts, '1 minute') w, count(*) c FROM a__1 GROUP BY 1",
            APPEND,
            "Global aggregation with session window",
        ),
        ("SELECT id, 1 / 0 q FROM a__1", APPEND, "Division by zero"),
        ("SELECT nope FROM a__1", APPEND, "`nope` cannot be resolved"),
    ],
)
def test_an_error_of_the_empty_epoch_is_an_error_of_the_query(
    text: str,
    output: OutputMode,
    message: str,
    analyzer: StreamAnalyzer,
    spark: SparkExecutor,
    scratch: Path,
) -> None:
    query = unchecked(analyzer, text, output)

    with pytest.raises(SelectError, match=message):
        analyzer.try_epoch(query, time_zone="UTC", python_udfs="", lookups=[])

    assert not scratch.exists() or not [*scratch.iterdir()]
    assert running_queries(spark) == 0


@pytest.fixture(autouse=True)
def _no_query_is_left(spark: SparkExecutor) -> Iterator[None]:
    yield
    assert running_queries(spark) == 0
