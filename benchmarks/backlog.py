"""The cadence of a backlog: fixed intervals against longer intervals while a backlog waits.

Every run loads the same files into a new table. The ceiling is a run with one single commit.
Afterwards small files arrive one by one, also for a job that never had a backlog.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from rich.console import Console

from benchmarks.figures import Comparison, Figure, Goal
from benchmarks.sample_orders import SQL_COLUMNS, write_orders
from benchmarks.streaming_tables import Node, _wait, running
from penstock.model.epoch import CommitKind
from penstock.model.events import BacklogEntered, BacklogFinished, Outcome
from penstock.model.ledger import LedgerEntry

FILES = 200
LATE_ROWS = 100
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "backlog.svg"
FIXED, ENDLESS, MINUTE = "fixed cadence", "backlog interval 0", "backlog interval 60 s"
CEILING = "one single commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One measured load: seconds to the boundary, and the committed epochs."""

    seconds: float
    epochs: tuple[LedgerEntry, ...]
    started_at: datetime


def measure_backlog(root: Path, console: Console, *, rows: int, quick: bool) -> list[Figure]:
    """Load a backlog with several cadences, directly and through a streaming table."""
    inbox = root / "backlog-inbox"
    console.print(f"writing {rows:,} rows in {FILES} files …", style="dim")
    write_orders(inbox, files=FILES, rows_per_file=rows // FILES)
    node = Node(root / "backlog")
    try:
        # The first load compiles plans and starts workers.
        _load(node, inbox, interval="1h")
        figures, drawn = _direct(node, inbox, console)
        if not quick:
            PICTURE.write_text(drawing(drawn), "utf-8")
        figures += _through_table(node, inbox, console)
        return figures + _latencies(node, inbox, console, files=5 if quick else 40)
    finally:
        node.close()


def _cadences(interval: str) -> dict[str, dict[str, str]]:
    key = "checkpoint.interval-during-backlog"
    return {FIXED: {}, ENDLESS: {key: "0"}, MINUTE: {key: "60s"}} | (
        {CEILING: {"max_interval": "1h"}} if interval else {}
    )


def _direct(node: Node, inbox: Path, console: Console) -> tuple[list[Figure], dict[str, Load]]:
    """Load the files with all cadences; return also the loads with the shortest interval."""
    figures: list[Figure] = []
    shown: dict[str, Load] = {}
    for interval in ("1s", "10s"):
        loads: dict[str, Load] = {}
        for name, options in _cadences(interval).items():
            console.print(f"interval {interval}, {name} …", style="dim")
            loads[name] = _load(node, inbox, **{"interval": interval, **_keywords(options)})
        figures += _compared(f"backlog, interval {interval}", loads)
        shown = shown or loads
    return figures, shown


def _keywords(options: dict[str, str]) -> dict[str, str]:
    return {
        {"max_interval": "interval"}.get(key, "backlog"): value
        for key, value in options.items()
    }


def _compared(title: str, loads: dict[str, Load]) -> list[Figure]:
    fixed, ceiling = loads[FIXED], loads[CEILING]
    figures: list[Figure] = []
    for name, load in loads.items():
        figure = Figure(name=f"{title}, {name}", value=load.seconds, unit="s")
        commits = Figure(name="  commits", value=float(len(load.epochs)), unit="commits")
        if name in (ENDLESS, MINUTE):
            figure = figure.against(
                Comparison(
                    ratio=ceiling.seconds / load.seconds,
                    against=f"{CEILING} (inverse)",
                    goal=Goal(at_least=0.9),
                )
            )
            commits = commits.against(
                Comparison(
                    ratio=len(load.epochs) / len(fixed.epochs),
                    against=FIXED,
                    goal=Goal(at_most=0.2),
                )
            )
        figures += [figure, commits]
    planned = sum(epoch.plan_seconds or 0.0 for epoch in fixed.epochs)
    percent = 100 * planned / fixed.seconds
    return [*figures, Figure(name="  plans, fixed cadence", value=percent, unit="% of time")]


def _load(node: Node, inbox: Path, *, interval: str, backlog: str = "") -> Load:
    """Load the files until caught up; return the time from the first boundary to the last."""
    node.sql(_create(inbox, interval=interval, backlog=backlog))
    node.run()
    load = _measured(node, "bulk")
    node.sql("DROP JOB bulk; DROP TABLE bulk_rows")
    return load


def _create(inbox: Path, *, interval: str, backlog: str = "", name: str = "bulk") -> str:
    longer = f", 'checkpoint.interval-during-backlog' = '{backlog}'" if backlog else ""
    names = ", ".join(column.split()[0] for column in SQL_COLUMNS.split(", "))
    return (
        f"CREATE TABLE {name}_rows ({SQL_COLUMNS}); "
        f"CREATE JOB {name} PROPERTIES ('max_interval' = '{interval}'{longer}) ON STREAMING DO "
        f"INSERT INTO {name}_rows SELECT {names} FROM FILES("
        f"'uri' = 'file://{inbox}/*.json', 'format' = 'json')"
    )


def _measured(node: Node, job: str) -> Load:
    state = node.app.catalog.job(job)
    if state is None:
        raise LookupError(job)
    events = node.app.catalog.events(state.id, newest=100_000)
    starts = [e.at for e in events if isinstance(e.body, BacklogEntered)]
    finished = [e.at for e in events if isinstance(e.body, BacklogFinished)]
    entries = node.app.catalog.ledger(state.id, newest=10_000)
    epochs = tuple(
        entry
        for entry in entries
        if entry.kind is CommitKind.EPOCH and entry.outcome is Outcome.COMMITTED
    )
    entered = min([*starts, *(e.started_at for e in epochs if e.started_at)])
    ended = max([*finished, *(e.ended_at for e in epochs if e.ended_at)])
    return Load(seconds=(ended - entered).total_seconds(), epochs=epochs, started_at=entered)


def _through_table(node: Node, inbox: Path, console: Console) -> list[Figure]:
    """Load the files while a streaming table reads the loaded table."""
    loads: dict[str, Load] = {}
    for name, options in _cadences("1s").items():
        console.print(f"through a streaming table, {name} …", style="dim")
        words = {"interval": "1s", **_keywords(options)}
        node.sql(_create(inbox, interval=words["interval"], backlog=words.get("backlog", "")))
        longer = words.get("backlog", "")
        given = f"'checkpoint.interval' = '{words['interval']}'" + (
            f", 'checkpoint.interval-during-backlog' = '{longer}'" if longer else ""
        )
        node.sql(
            f"CREATE STREAMING TABLE bulk_table WITH ({given}) AS "
            "SELECT * FROM STREAM bulk_rows"
        )
        started = perf_counter()
        with running(node):
            _wait(lambda: _all_rows(node, inbox))
        seconds = perf_counter() - started
        measured = _measured(node, "bulk_table")
        loads[name] = Load(
            seconds=seconds, epochs=measured.epochs, started_at=measured.started_at
        )
        node.sql("DROP STREAMING TABLE bulk_table; DROP JOB bulk; DROP TABLE bulk_rows")
    return _compared("through a streaming table", loads)


def _all_rows(node: Node, inbox: Path) -> bool:
    table, job = node.app.catalog.job("bulk_table"), node.app.catalog.job("bulk")
    if table is None or job is None:
        return False
    done = job.cumulative.files_read == len(list(inbox.iterdir()))
    return done and table.cumulative.rows_loaded == job.cumulative.rows_loaded


def _latencies(node: Node, inbox: Path, console: Console, *, files: int) -> list[Figure]:
    """Add small files after a backlog, and for a job without one; compare the latencies."""
    console.print(f"{files} small files after the backlog …", style="dim")
    small = inbox.parent / "backlog-small"
    after = _arrivals(node, inbox, files=files, backlog="0", first=10_000_000)
    small.mkdir()
    write_orders(small, files=1, rows_per_file=LATE_ROWS)
    without = _arrivals(node, small, files=files, backlog="", first=20_000_000)
    figures = []
    for name, percentile in (("p50", 50), ("p99", 99)):
        own, bare = _percentile(after, percentile), _percentile(without, percentile)
        figures.append(
            Figure(name=f"file to visible row, no backlog before, {name}", value=bare, unit="s")
        )
        figures.append(
            Figure(
                name=f"file to visible row, after a backlog, {name}", value=own, unit="s"
            ).against(
                Comparison(
                    ratio=own / bare, against="no backlog before", goal=Goal(at_most=1.5)
                )
            )
        )
    return figures


def _arrivals(node: Node, inbox: Path, *, files: int, backlog: str, first: int) -> list[float]:
    """Return the seconds from the end of a file to its visible rows, for files in turn."""
    node.sql(_create(inbox, interval="1s", backlog=backlog))
    if not backlog:
        # CREATE needs a file, but the job must find none.
        for path in inbox.iterdir():
            path.unlink()
    taken: list[float] = []
    with running(node):
        _wait(partial(_has_loaded, node, len(list(inbox.iterdir()))))
        for number in range(files):
            write_orders(inbox, files=1, rows_per_file=LATE_ROWS, first=first + number)
            started = perf_counter()
            count = len(list(inbox.iterdir()))
            _wait(partial(_has_loaded, node, count))
            taken.append(perf_counter() - started)
    node.sql("DROP JOB bulk; DROP TABLE bulk_rows")
    return taken


def _has_loaded(node: Node, files: int) -> bool:
    state = node.app.catalog.job("bulk")
    return state is not None and state.cumulative.files_read >= files


def _percentile(samples: Sequence[float], percentile: int) -> float:
    if percentile == 50:
        return median(samples)
    return quantiles(samples, n=100, method="inclusive")[percentile - 1]


def _rows(load: Load) -> int:
    return sum(epoch.statistics.rows_loaded for epoch in load.epochs)


# The picture

WIDTH, HEIGHT, MARGIN = 720, 320, 56
COLORS = {FIXED: "#b3261e", ENDLESS: "#1b6e53", MINUTE: "#2f5da8", CEILING: "#777777"}


def drawing(loads: dict[str, Load]) -> str:
    """Return an SVG of the visible rows over time, one line for each cadence."""
    seconds_max = max(load.seconds for load in loads.values()) or 1.0
    rows_max = max(_rows(load) for load in loads.values())

    def at(seconds: float, rows: int) -> str:
        x = MARGIN + seconds / seconds_max * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - rows / max(1, rows_max) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<polyline fill="none" stroke="#444" points="{at(0, rows_max)} {at(0, 0)} '
        f'{at(seconds_max, 0)}"/>',
        f'<text x="{MARGIN}" y="{MARGIN - 16}">visible rows: {rows_max:,}</text>',
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 28}" text-anchor="end">'
        f"{seconds_max:.1f} seconds</text>",
    ]
    for number, (name, load) in enumerate(loads.items()):
        rows, points = 0, [at(0, 0)]
        for epoch in load.epochs:
            if epoch.ended_at is None:
                continue
            seconds = (epoch.ended_at - load.started_at).total_seconds()
            points.append(at(seconds, rows))
            rows += epoch.statistics.rows_loaded
            points.append(at(seconds, rows))
        color = COLORS[name]
        parts.append(
            f'<polyline fill="none" stroke="{color}" stroke-width="2" '
            f'points="{" ".join(points)}"/>'
        )
        parts.append(
            f'<text x="{MARGIN + 12}" y="{MARGIN + 6 + 18 * number}" fill="{color}">'
            f"{name}: {len(load.epochs)} commits</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
