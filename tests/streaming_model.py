"""Query shapes of streaming tables, each with a model in plain Python.

A model replays the recorded batches of a streaming table and returns the rows of the table. It
knows nothing of Spark but the rules of its stateful operators:

- An operator drops a row, or a window of a row, up to the watermark ``drops`` of the batch.
- It closes state up to the watermark ``closes``, after the rows of the batch were added.
- A NULL event time is never late. A group with a NULL event time is never closed.
- A join does not keep a row with a NULL key or time. An outer join writes it at once.
- An operator without state ignores the watermark.

A time is a number of microseconds since 1970. FINAL is later than any ``datetime``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

# The schema of the input tables.
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("k", pa.string()),
    ("v", pa.int64()),
    ("ts", pa.timestamp("us", "UTC")),
]
INPUT = pa.schema(_FIELDS)
MILLISECOND = 1_000
SECOND = 1_000 * MILLISECOND

# A row of an input table has id, k, v and ts. A row of a result is a tuple.
Row = Mapping[str, Any]
Result = tuple[Any, ...]
State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The two watermarks of an operator in a batch."""

    closes: int
    drops: int

    def earlier(self, by: int) -> "Marks":
        """Return the watermarks that a join passes on: its state is kept for longer."""
        return Marks(closes=self.closes - by, drops=self.drops - by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A recorded batch: the rows of each stream, those of the static table, the watermarks."""

    streams: Mapping[str, tuple[Row, ...]]
    static: tuple[Row, ...] = ()
    marks: Marks

    @property
    def a(self) -> tuple[Row, ...]:
        """The rows of the first stream of the query."""
        return self.streams["s1"]

    @property
    def b(self) -> tuple[Row, ...]:
        """The rows of the second stream of the query."""
        return self.streams["s2"]


def plain(value: Any) -> Any:
    """Return a time as microseconds since 1970, and any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    at = value if value.tzinfo else value.astimezone(UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def late_rows(batches: Iterable[Batch]) -> int:
    """Return the number of rows that came too late, whether an operator dropped them or not."""
    return sum(
        reached(row["ts"], batch.marks.drops)
        for batch in batches
        for rows in batch.streams.values()
        for row in rows
    )


def reached(time: int | None, mark: int) -> bool:
    """Return whether a watermark has reached a time; no watermark reaches NULL."""
    return time is not None and time <= mark


# The module of the Python functions that queries call.
FUNCTIONS = __name__


# Without type hints, because pyspark would interpret them as hints for pandas.
@udf(StringType())
def shout(text):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return None if text is None else text.upper()


# Aggregates. The first part of a key is the time that is compared with the watermark.

Key = tuple[Any, ...]
Groups = Mapping[Key, tuple[Any, ...]]
NO_GROUPS: Groups = {}


def close_groups(
    groups: Groups, added: Iterable[tuple[Key, Any]], marks: Marks
) -> tuple[Groups, Groups]:
    """Add values to groups that are not late; return the open and the closed groups."""
    found = {key: [*values] for key, values in groups.items()}
    for key, value in added:
        if not reached(key[0], marks.drops):
            found.setdefault(key, []).append(value)
    total = {key: tuple(values) for key, values in found.items()}
    closed = {key: values for key, values in total.items() if reached(key[0], marks.closes)}
    return {key: total[key] for key in total.keys() - closed.keys()}, closed


def windows(time: int | None, size: int, slide: int) -> Iterator[int]:
    """Yield the ends of the windows that contain a time; no window contains NULL."""
    if time is None:
        return
    start = time - time % slide
    while start + size > time:
        yield start + size
        start -= slide


Session = tuple[Any, int, int, int]


def close_sessions(
    sessions: Sequence[Session], rows: Iterable[Row], marks: Marks, *, gap: int
) -> tuple[list[Session], list[Session]]:
    """Merge rows into sessions: key, start, end, count; return open and closed sessions.

    The session of one row ends after the gap. The lateness of a row depends on this end, not on
    the session that the row would extend.
    """
    timed = [row for row in rows if row["ts"] is not None]
    single = [(row["k"], row["ts"], row["ts"] + gap, 1) for row in timed]
    added = [one for one in single if not reached(one[2], marks.drops)]
    merged: list[Session] = []
    in_order = sorted([*sessions, *added], key=lambda one: (str(one[0]), one[1]))
    for _, own in groupby(in_order, key=lambda one: one[0]):
        merged += _merged(own)
    closed = [one for one in merged if reached(one[2], marks.closes)]
    return [one for one in merged if one not in closed], closed


def _merged(sessions: Iterable[Session]) -> list[Session]:
    """Merge the sessions of one key, which are ordered by start."""
    found: list[Session] = []
    for key, start, end, count in sessions:
        # A session that starts exactly at the end of another one extends it.
        if found and start <= found[-1][2]:
            _, first, last, counted = found.pop()
            found.append((key, first, max(last, end), counted + count))
        else:
            found.append((key, start, end, count))
    return found


# Joins of two streams

Pair = tuple[Row | None, Row | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRule:
    """The condition of a join, and how long its sides keep their rows.

    ``time`` is compared with the watermark: the event time, or the end of the window that both
    sides have in their keys. A side keeps a row for the given time after the watermark.
    """

    in_bounds: Callable[[Row, Row], bool]
    time: Callable[[Row], int | None] = lambda row: row["ts"]
    left_kept: int = 0
    right_kept: int = 0
    left_outer: bool = False
    right_outer: bool = False

    def matches(self, left: Row, right: Row) -> bool:
        """Return whether two rows are a pair."""
        return left["k"] == right["k"] and self.in_bounds(left, right)

    def can_match(self, row: Row) -> bool:
        """Return whether a row has the values that a pair must have."""
        return row["k"] is not None and self.time(row) is not None

    @property
    def kept(self) -> int:
        """The longer of the two times; an aggregate above the join waits so long."""
        return max(self.left_kept, self.right_kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinState:
    """The rows that each side of a join keeps, and the ids of the rows that found a match."""

    left: tuple[Row, ...] = ()
    right: tuple[Row, ...] = ()
    left_matched: frozenset[int] = frozenset()
    right_matched: frozenset[int] = frozenset()


def join(
    state: JoinState, left: Iterable[Row], right: Iterable[Row], marks: Marks, rule: JoinRule
) -> tuple[JoinState, list[Pair]]:
    """Join new rows with each other and with the state; return the state and the pairs.

    All rows of a batch are joined before any of them is evicted. An evicted row of an outer
    side that never found a match is joined with NULL.
    """
    on_time_left = [row for row in left if not reached(rule.time(row), marks.drops)]
    on_time_right = [row for row in right if not reached(rule.time(row), marks.drops)]
    new_left = [row for row in on_time_left if rule.can_match(row)]
    new_right = [row for row in on_time_right if rule.can_match(row)]
    all_left, all_right = (*state.left, *new_left), (*state.right, *new_right)
    fresh = [(one, other) for one in state.left for other in new_right]
    fresh += [(one, other) for one in new_left for other in all_right]
    found = [pair for pair in fresh if rule.matches(*pair)]
    left_matched = state.left_matched | {one["id"] for one, _ in found}
    right_matched = state.right_matched | {other["id"] for _, other in found}
    pairs: list[Pair] = [*found]
    kept_left, evicted = _evict(all_left, rule, marks.earlier(rule.left_kept))
    if rule.left_outer:
        pairs += [(row, None) for row in on_time_left if not rule.can_match(row)]
        pairs += [(row, None) for row in evicted if row["id"] not in left_matched]
    kept_right, evicted = _evict(all_right, rule, marks.earlier(rule.right_kept))
    if rule.right_outer:
        pairs += [(None, row) for row in on_time_right if not rule.can_match(row)]
        pairs += [(None, row) for row in evicted if row["id"] not in right_matched]
    after = JoinState(
        left=kept_left,
        right=kept_right,
        left_matched=left_matched,
        right_matched=right_matched,
    )
    return after, pairs


def _evict(
    rows: Sequence[Row], rule: JoinRule, marks: Marks
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the rows that stay in the state, and the evicted rows.

    Spark reads only the times that the last eviction has not read.
    """
    evicted = tuple(row for row in rows if marks.drops < (rule.time(row) or 0) <= marks.closes)
    return tuple(row for row in rows if row not in evicted), evicted


def time_bound(before: int, after: int) -> JoinRule:
    """Return the rule of ``y.ts BETWEEN x.ts - before AND x.ts + after``.

    A later x matches y up to ``before`` after y. Spark keeps one millisecond more.
    """

    def in_bounds(left: Row, right: Row) -> bool:
        if left["ts"] is None or right["ts"] is None:
            return False
        return bool(left["ts"] - before <= right["ts"] <= left["ts"] + after)

    return JoinRule(
        in_bounds=in_bounds,
        left_kept=after + MILLISECOND,
        right_kept=before + MILLISECOND,
    )


# Shapes

Replay = Callable[[Sequence[Batch]], list[Result]]

# Parts of several queries.
_IDS = "SELECT x.id AS x_id, y.id AS y_id FROM"
_COUNTS = "count(*) AS n, sum(v) AS total"
_BOUND = "x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL 5 SECONDS AND x.ts + INTERVAL 7 SECONDS"

# The same bound with the conditions that an outer join of two streams gets.
COMPLETED_BOUND = " AND ".join(
    (_BOUND, *(f"{column} IS NOT NULL" for column in ("x.k", "x.ts", "y.k", "y.ts")))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A query with its model.

    The text has a name in braces for each stream: a or b. The static table is d. ``ttl_bound``
    is the condition that ``state.ttl`` adds to the query.
    """

    name: str
    text: str
    model: Replay
    options: Mapping[str, str] = field(default_factory=dict)
    ttl_bound: str = ""
    # Whether the table has one current row per key, instead of all rows.
    keyed: bool = False

    def create(self, options: Mapping[str, str]) -> str:
        """Return the statement that creates the streaming table."""
        mark = "WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
        given = {**options, **self.options}
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        query = self._query(a=f"STREAM a {mark}", b=f"STREAM b {mark}")
        return f"CREATE STREAMING TABLE {self.name} WITH ({pairs}) AS {query}"

    def select(self, a: str = "a", b: str = "b", *, bound: str = _BOUND) -> str:
        """Return the same query over other tables or views."""
        return self._query(a=a, b=b, ttl=self.ttl_bound, bound=bound)

    def _query(self, *, a: str, b: str, ttl: str = "", bound: str = _BOUND) -> str:
        parts = {"ids": _IDS, "counts": _COUNTS, "bound": bound}
        return self.text.format(a=a, b=b, ttl=ttl, **parts)


def _replayed(
    step: Callable[[State, Batch], tuple[State, list[Result]]], start: State
) -> Replay:
    """Return the model that runs one step per batch."""

    def replay(batches: Sequence[Batch]) -> list[Result]:
        state, results = start, list[Result]()
        for batch in batches:
            state, new = step(state, batch)
            results += new
        return results

    return replay


def _stateless(results_of: Callable[[Batch], Iterable[Result]]) -> Replay:
    return lambda batches: [result for batch in batches for result in results_of(batch)]


def _window_counts(
    size: int, slide: int, wanted: Callable[[Row], bool] | None = None
) -> Replay:
    def step(groups: Groups, batch: Batch) -> tuple[Groups, list[Result]]:
        rows = [row for row in batch.a if wanted is None or wanted(row)]
        added = [((e, r["k"]), r["v"]) for r in rows for e in windows(r["ts"], size, slide)]
        groups, closed = close_groups(groups, added, batch.marks)
        return groups, [(key[0] - size, key[1], len(v), sum(v)) for key, v in closed.items()]

    return _replayed(step, NO_GROUPS)


def _sessions(gap: int) -> Replay:
    def step(
        sessions: Sequence[Session], batch: Batch
    ) -> tuple[Sequence[Session], list[Result]]:
        left, closed = close_sessions(sessions, batch.a, batch.marks, gap=gap)
        return left, [*closed]

    none: Sequence[Session] = ()
    return _replayed(step, none)


def _distinct() -> Replay:
    def step(groups: Groups, batch: Batch) -> tuple[Groups, list[Result]]:
        added = [((row["ts"], row["k"]), None) for row in batch.a]
        groups, closed = close_groups(groups, added, batch.marks)
        return groups, [(key[1], key[0]) for key in closed]

    return _replayed(step, NO_GROUPS)


def _join(rule: JoinRule) -> Replay:
    def step(state: JoinState, batch: Batch) -> tuple[JoinState, list[Result]]:
        state, pairs = join(state, batch.a, batch.b, batch.marks, rule)
        return state, [(one and one["id"], other and other["id"]) for one, other in pairs]

    return _replayed(step, JoinState())


def _join_counts(rule: JoinRule, size: int) -> Replay:
    """Return the model of a window count over a join.

    The count sees an earlier watermark, because the join can still emit older rows.
    """

    def step(
        state: tuple[JoinState, Groups], batch: Batch
    ) -> tuple[tuple[JoinState, Groups], list[Result]]:
        joined, pairs = join(state[0], batch.a, batch.b, batch.marks, rule)
        ends = [end for one, _ in pairs if one for end in windows(one["ts"], size, size)]
        marks = batch.marks.earlier(rule.kept)
        groups, closed = close_groups(state[1], [((end,), 1) for end in ends], marks)
        return (joined, groups), [(key[0] - size, len(v)) for key, v in closed.items()]

    return _replayed(step, (JoinState(), NO_GROUPS))


def _counts_of_counts(size: int, outer_size: int) -> Replay:
    """Return the model of a window aggregate over a window aggregate.

    The time of a window is its last microsecond. Both aggregates close in the same batch.
    """

    def step(
        state: tuple[Groups, Groups], batch: Batch
    ) -> tuple[tuple[Groups, Groups], list[Result]]:
        added = [
            ((end, row["k"]), 1) for row in batch.a for end in windows(row["ts"], size, size)
        ]
        inner, closed = close_groups(state[0], added, batch.marks)
        counts = [
            ((end,), len(values))
            for key, values in closed.items()
            for end in windows(key[0] - 1, outer_size, outer_size)
        ]
        outer, ended = close_groups(state[1], counts, batch.marks)
        return (inner, outer), [
            (key[0] - outer_size, sum(v), len(v)) for key, v in ended.items()
        ]

    return _replayed(step, (NO_GROUPS, NO_GROUPS))


def _totals(key_of: Callable[[Row], Result]) -> Replay:
    """Return the model of an aggregate without an event time: no row is late for it."""

    def replay(batches: Sequence[Batch]) -> list[Result]:
        rows = [row for batch in batches for row in batch.a]
        counts = Counter(key_of(row) for row in rows)
        sums: Counter[Result] = Counter()
        for row in rows:
            sums[key_of(row)] += row["v"]
        return [(*key, counts[key], sums[key]) for key in counts]

    return replay


def _same_window(size: int) -> JoinRule:
    def end(row: Row) -> int | None:
        return next(windows(row["ts"], size, size), None)

    return JoinRule(in_bounds=lambda x, y: end(x) == end(y) is not None, time=end)


_BOUND_RULE = time_bound(5 * SECOND, 7 * SECOND)
_TTL_BOUND = "AND y.ts BETWEEN x.ts - INTERVAL 6 SECONDS AND x.ts + INTERVAL 6 SECONDS"
_TTL_RULE = time_bound(6 * SECOND, 6 * SECOND)


def _joined(rule: JoinRule, *, left: bool = False, right: bool = False) -> Replay:
    return _join(replace(rule, left_outer=left, right_outer=right))


def _is_odd(row: Row) -> bool:
    return bool(row["v"] % 2 == 1)


SHAPES = (
    Shape(
        name="kept",
        text="SELECT id, v * 2 AS v, ts FROM {a} WHERE v % 3 <> 0",
        model=_stateless(
            lambda batch: [(r["id"], r["v"] * 2, r["ts"]) for r in batch.a if r["v"] % 3]
        ),
    ),
    Shape(
        name="tumbling",
        text="SELECT window.start AS w, k, {counts} FROM {a} "
        "GROUP BY window(ts, '10 seconds'), k",
        model=_window_counts(10 * SECOND, 10 * SECOND),
    ),
    Shape(
        name="sliding",
        text="SELECT window.start AS w, k, {counts} FROM {a} "
        "GROUP BY window(ts, '10 seconds', '5 seconds'), k",
        model=_window_counts(10 * SECOND, 5 * SECOND),
    ),
    Shape(
        name="sessions",
        text="SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS n "
        "FROM {a} GROUP BY session_window(ts, '5 seconds'), k",
        model=_sessions(5 * SECOND),
    ),
    Shape(
        name="inner_join",
        text="{ids} {a} x JOIN {b} y ON {bound}",
        model=_joined(_BOUND_RULE),
    ),
    Shape(
        name="left_join",
        text="{ids} {a} x LEFT JOIN {b} y ON {bound}",
        model=_joined(_BOUND_RULE, left=True),
    ),
    Shape(
        name="right_join",
        text="{ids} {a} x RIGHT JOIN {b} y ON {bound}",
        model=_joined(_BOUND_RULE, right=True),
    ),
    Shape(
        name="full_join",
        text="{ids} {a} x FULL JOIN {b} y ON {bound}",
        model=_joined(_BOUND_RULE, left=True, right=True),
    ),
    Shape(
        name="ttl_join",
        text="{ids} {a} x JOIN {b} y ON x.k = y.k {ttl}",
        model=_joined(_TTL_RULE),
        options={"state.ttl": "6s"},
        ttl_bound=_TTL_BOUND,
    ),
    Shape(
        name="window_join",
        text="{ids} (SELECT id, k, window(ts, '10 seconds') AS w FROM {a}) x "
        "JOIN (SELECT id, k, window(ts, '10 seconds') AS w FROM {b}) y "
        "ON x.k = y.k AND x.w = y.w",
        model=_joined(_same_window(10 * SECOND)),
    ),
    Shape(
        name="self_join",
        text="{ids} {a} x JOIN {a} y ON x.k = y.k "
        "AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 4 SECONDS",
        model=_joined(time_bound(0, 4 * SECOND)),
    ),
    Shape(
        name="static_join",
        text="SELECT x.id, d.name FROM {a} x JOIN d ON x.k = d.k",
        model=_stateless(
            lambda batch: [
                (r["id"], d["name"])
                for r in batch.a
                for d in batch.static
                if r["k"] == d["k"] is not None
            ]
        ),
    ),
    Shape(name="distinct_rows", text="SELECT DISTINCT k, ts FROM {a}", model=_distinct()),
    Shape(
        name="counts_of_counts",
        text="SELECT window.start AS w, sum(n) AS n, count(*) AS keys FROM (SELECT window AS "
        "inner_w, count(*) AS n FROM {a} GROUP BY window(ts, '10 seconds'), k) "
        "GROUP BY window(inner_w, '30 seconds')",
        model=_counts_of_counts(10 * SECOND, 30 * SECOND),
    ),
    Shape(
        name="join_counts",
        text="SELECT window.start AS w, count(*) AS n FROM (SELECT x.ts AS ts FROM {a} x "
        "JOIN {b} y ON {bound}) GROUP BY window(ts, '10 seconds')",
        model=_join_counts(_BOUND_RULE, 10 * SECOND),
    ),
    Shape(
        name="both",
        text="SELECT id, 'a' AS side FROM {a} UNION ALL SELECT id, 'b' FROM {b}",
        model=_stateless(
            lambda batch: [(r["id"], "a") for r in batch.a] + [(r["id"], "b") for r in batch.b]
        ),
    ),
    Shape(
        name="odd_counts",
        text="WITH odd AS (SELECT * FROM {a} WHERE v % 2 = 1) "
        "SELECT window.start AS w, k, {counts} FROM odd "
        "GROUP BY window(ts, '10 seconds'), k",
        model=_window_counts(10 * SECOND, 10 * SECOND, _is_odd),
    ),
    Shape(
        name="python_rows",
        text="SELECT id, shout(k) AS k FROM {a}",
        model=_stateless(
            lambda batch: [
                (r["id"], None if r["k"] is None else r["k"].upper()) for r in batch.a
            ]
        ),
    ),
    Shape(
        name="by_key",
        text="SELECT k, {counts} FROM {a} GROUP BY k",
        model=_totals(lambda row: (row["k"],)),
        keyed=True,
    ),
    Shape(
        name="in_total",
        text="SELECT {counts} FROM {a}",
        model=_totals(lambda _: ()),
        keyed=True,
    ),
)
