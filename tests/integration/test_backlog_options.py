"""Options of the cadence: refusals, spellings and changes, for every kind of job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.model.backlog import LagMarks, LagUnit
from penstock.model.job_kinds import JobProperties, Properties, RoutineProperties
from penstock.spark.executor import SparkExecutor
from tests.error_values import raises
from tests.integration.driving import MovedClock, idle, rounds_until, stored, supervised
from tests.integration.routine_loads import Load
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, numbered, write_rows

pytestmark = pytest.mark.integration

INTERVAL, JOB_INTERVAL, LOAD_INTERVAL = (
    "checkpoint.interval",
    "max_interval",
    "max_batch_interval",
)
SPELLINGS = (INTERVAL, JOB_INTERVAL, LOAD_INTERVAL)
LONGER = "checkpoint.interval-during-backlog"
HIGH, LOW = "backlog.lag-high", "backlog.lag-low"
FRESHNESS = "freshness"
SUFFIX = "-during-backlog"
# Placeholder for the folder of the source.
FOLDER = "<folder>"

Options = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The statements of a kind of job; NAME and ``{}`` are the name and the options."""

    create: str
    pause: str
    resume: str
    drop: str
    alter: str
    show_create: str
    # The own spelling of the interval, and its default.
    interval: str
    default: str
    # Batch limits, each with a small value and a value below it.
    limits: Mapping[str, tuple[str, str]]
    # For each limit a value above its default, as SHOW CREATE prints it.
    larger: Mapping[str, str]
    # Marks in a unit that the source cannot measure, and the name of the unit.
    unmeasured: tuple[str, str, str] | None


JOB = Kind(
    create="CREATE JOB NAME PROPERTIES({}) ON STREAMING DO INSERT INTO t "  # noqa: S608 - Ours.
    f"SELECT id, note FROM FILES('uri' = 'file://{FOLDER}/*.json', 'format' = 'json')",
    pause="PAUSE JOB NAME",
    resume="RESUME JOB NAME",
    drop="DROP JOB j",
    alter="ALTER JOB NAME PROPERTIES({})",
    show_create="SHOW CREATE JOB NAME",
    interval=JOB_INTERVAL,
    default="10s",
    limits={"s3.max_batch_files": ("3", "2"), "s3.max_batch_bytes": ("3001", "3000")},
    larger={"s3.max_batch_files": "257", "s3.max_batch_bytes": "11GB"},
    unmeasured=("10 rows", "5 rows", "rows"),
)
LOAD = Kind(
    create="CREATE ROUTINE LOAD NAME ON t PROPERTIES({}) FROM DATAGEN('rows_per_second' = '1')",
    pause="PAUSE ROUTINE LOAD FOR NAME",
    resume="RESUME ROUTINE LOAD FOR NAME",
    drop="STOP ROUTINE LOAD FOR j",
    alter="ALTER ROUTINE LOAD FOR NAME PROPERTIES({})",
    show_create="SHOW CREATE ROUTINE LOAD FOR NAME",
    interval=LOAD_INTERVAL,
    default="60s",
    limits={"max_batch_rows": ("3", "2"), "max_batch_size": ("3001", "3000")},
    larger={"max_batch_rows": "20000001", "max_batch_size": "2GB"},
    unmeasured=("64 MB", "8 MB", "bytes"),
)
TABLE = Kind(
    create="CREATE STREAMING TABLE NAME WITH ({}) AS SELECT id FROM STREAM t",
    pause="PAUSE STREAMING TABLE NAME",
    resume="RESUME STREAMING TABLE NAME",
    drop="DROP STREAMING TABLE j",
    alter="ALTER STREAMING TABLE NAME SET ({})",
    show_create="SHOW CREATE STREAMING TABLE NAME",
    interval=INTERVAL,
    default="10s",
    limits={"max_files_per_epoch": ("3", "2"), "max_bytes_per_epoch": ("3001", "3000")},
    larger={"max_files_per_epoch": "1001", "max_bytes_per_epoch": "11GB"},
    unmeasured=None,
)
KINDS = {"job": JOB, "routine load": LOAD, "streaming table": TABLE}
CREATES = {
    "job": JOB.create,
    "routine load": LOAD.create,
    "streaming table with options": TABLE.create,
    "streaming table with properties": TABLE.create.replace("WITH (", "TBLPROPERTIES ("),
}


def kind_of(name: str) -> Kind:
    """Return the kind of a CREATE statement."""
    return next(kind for noun, kind in KINDS.items() if name.startswith(noun))


def run(node: Node, template: str, name: str, options: Options | None = None) -> str:
    """Run a statement of a job; return the last cell of the result."""
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in (options or {}).items())
    statement = template.replace("NAME", name).replace("{}", pairs)
    # Without options there is no clause for them.
    statement = statement.replace("PROPERTIES() ", "").replace("WITH () ", "")
    rows = node.sql(statement.replace(FOLDER, str(node.home.parent / "in")))
    return str(list(rows[0].values())[-1]) if rows else ""


def wrong_intervals(kind: Kind) -> Iterator[tuple[str, Options, tuple[str, ...]]]:
    """Yield options with a wrong interval, and the values that the error names."""
    least = "0.001s" if kind is TABLE else "1s"
    for key in SPELLINGS:
        yield f"{key} zero", {key: "0"}, (f'"{key}"', least, "0")
        yield f"{key} negative", {key: "-1s"}, (f'"{key}"', '"-1s"')
        yield f"{key} empty", {key: ""}, (f'"{key}"', '""')
        yield f"{key} is no duration", {key: "soon"}, (f'"{key}"', '"soon"')
    for one, other in zip(SPELLINGS, (*SPELLINGS[1:], SPELLINGS[0]), strict=True):
        yield f"{one} and {other}", {one: "20s", other: "20s"}, (f'"{one}"', f'"{other}"')
    yield "backlog interval negative", {LONGER: "-1s"}, (f'"{LONGER}"', '"-1s"')
    yield "backlog interval is no duration", {LONGER: "soon"}, (f'"{LONGER}"', '"soon"')
    yield (
        "backlog interval below the default",
        {LONGER: "9s"},
        (f'"{LONGER}"', kind.default, "9s"),
    )
    yield (
        "backlog interval below the normal interval",
        {kind.interval: "2 min", LONGER: "119999"},
        (f'"{LONGER}"', "120s", "119.999s"),
    )


def wrong_marks(kind: Kind) -> Iterator[tuple[str, Options, tuple[str, ...]]]:
    """Yield options with wrong marks of the lag rule."""
    both = (f'"{HIGH}"', f'"{LOW}"')
    yield "high mark alone", {HIGH: "5 min"}, both
    yield "low mark alone", {LOW: "5 min"}, both
    yield "equal marks", {HIGH: "5 min", LOW: "300 s"}, (*both, '"5 min"', '"300 s"')
    yield "low mark above the high mark", {HIGH: "1 min", LOW: "2 min"}, (*both, '"2 min"')
    yield "different units", {HIGH: "64 MB", LOW: "1 min"}, (*both, "bytes", "time")
    yield "low mark of zero", {HIGH: "1 min", LOW: "0 s"}, (f'"{LOW}"', "0", '"0 s"')
    yield "mark without a unit", {HIGH: "100", LOW: "10"}, (f'"{HIGH}"', "unit", '"100"')
    yield "mark of an unknown unit", {HIGH: "9 lots", LOW: "1 s"}, (f'"{HIGH}"', '"9 lots"')
    yield "negative mark", {HIGH: "-9 rows", LOW: "-99 rows"}, (f'"{HIGH}"', '"-9 rows"')
    if kind.unmeasured is not None:
        high, low, unit = kind.unmeasured
        yield "mark that is not measured", {HIGH: high, LOW: low}, (f'"{HIGH}"', unit, "time")


def wrong_limits(kind: Kind) -> Iterator[tuple[str, Options, tuple[str, ...]]]:
    """Yield options with a wrong batch limit during backlog."""
    for key, (normal, below) in kind.limits.items():
        longer = f"{key}{SUFFIX}"
        yield (
            f"{longer} below the limit",
            {key: normal, longer: below},
            (f'"{longer}"', f'"{key}"', normal, below),
        )
        yield f"{longer} zero", {longer: "0"}, (f'"{longer}"', "1", "0")
        yield f"{longer} is no number", {longer: "many"}, (f'"{longer}"', '"many"')


def wrong_targets(_kind: Kind) -> Iterator[tuple[str, Options, tuple[str, ...]]]:
    """Yield options with a wrong target lag."""
    for key in SPELLINGS:
        for target in ("30 s", "downstream"):
            yield (
                f"freshness {target} with {key}",
                {FRESHNESS: target, key: "20s"},
                (f'"{FRESHNESS}"', f'"{key}"'),
            )
    yield "freshness below 1 s", {FRESHNESS: "999ms"}, (f'"{FRESHNESS}"', "1s", '"999ms"')
    yield "freshness zero", {FRESHNESS: "0"}, (f'"{FRESHNESS}"', "1s", '"0"')
    yield "freshness of an unknown word", {FRESHNESS: "soon"}, (f'"{FRESHNESS}"', '"soon"')
    yield (
        "backlog interval below the target",
        {FRESHNESS: "2 min", LONGER: "119s"},
        (f'"{LONGER}"', "120s", "119s"),
    )
    yield "misspelt option", {"backlog.lag_high": "5 min"}, ('"backlog.lag_high"',)


def refused(kind: Kind) -> dict[str, tuple[Options, tuple[str, ...]]]:
    """Return the options that a kind refuses, and the values that the error names."""
    cases = (wrong_intervals, wrong_marks, wrong_limits, wrong_targets)
    return {name: (options, values) for one in cases for name, options, values in one(kind)}


CREATED = [(name, case) for name in CREATES for case in refused(kind_of(name))]
ALTERED = [(name, case) for name in KINDS for case in refused(kind_of(name))]


def opened(folder: Path, spark: SparkExecutor) -> Node:
    """Open a node with a paused job of every kind; each has the name of its kind."""
    node = Node(folder / "home", spark=spark)
    write_rows(folder / "in" / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    for name, kind in KINDS.items():
        run(node, kind.create, named(name))
        run(node, kind.pause, named(name))
    return node


def named(kind: str) -> str:
    return kind.replace(" ", "_")


@pytest.fixture(scope="module")
def unchanged(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for all refused statements, because none of them changes it."""
    node = opened(tmp_path_factory.mktemp("unchanged"), spark)
    yield node
    node.catalog.close()


@pytest.fixture(scope="module")
def altered(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose jobs are altered; no test depends on the changes of another one."""
    node = opened(tmp_path_factory.mktemp("altered"), spark)
    yield node
    node.catalog.close()


@pytest.mark.parametrize(("statement", "case"), CREATED)
def test_a_job_with_wrong_options_is_not_created(
    unchanged: Node, statement: str, case: str
) -> None:
    options, values = refused(kind_of(statement))[case]
    before = stored(unchanged)

    with raises(UserError, Code.OPTION_ERR, *values):
        run(unchanged, CREATES[statement], "another", options)

    assert stored(unchanged) == before


@pytest.mark.parametrize(("kind", "case"), ALTERED)
def test_t40_an_alter_with_wrong_options_changes_nothing(
    unchanged: Node, kind: str, case: str
) -> None:
    options, values = refused(KINDS[kind])[case]
    before = stored(unchanged)

    with raises(UserError, Code.OPTION_ERR, *values):
        run(unchanged, KINDS[kind].alter, named(kind), options)

    assert stored(unchanged) == before


@pytest.mark.parametrize(
    ("high", "low", "unit"), [("9 rows", "1 row", "rows"), ("9 MB", "1 MB", "bytes")]
)
def test_the_lag_of_a_stream_is_measured_only_in_time(
    load: Load, high: str, low: str, unit: str
) -> None:
    with raises(UserError, Code.OPTION_ERR, f'"{HIGH}"', unit, "time"):
        load.create(properties={HIGH: high, LOW: low})

    assert not load.node.catalog.jobs()
    load.create(properties={HIGH: "5 min", LOW: "10 s"})


@pytest.fixture
def files(node: Node, folder: Path) -> Node:
    """A node with a table, and a file that can be loaded into the table."""
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    return node


def create(node: Node, kind: Kind, **options: str) -> None:
    """Create the job j, and pause it."""
    run(node, kind.create, "j", options)
    run(node, kind.pause, "j")


def shown(node: Node, kind: Kind, name: str = "j") -> dict[str, str]:
    """Return the options that SHOW CREATE prints, one in each line."""
    lines = run(node, kind.show_create, name).splitlines()
    given = [line.strip(" ,").split(" = ") for line in lines if line.startswith("  '")]
    return {key.strip("'"): value.strip("'") for key, value in given}


def properties(node: Node, name: str = "j") -> Properties:
    return node.job(name).definition.properties


LOADS = pytest.mark.parametrize("kind", [JOB, LOAD], ids=["job", "routine load"])
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@LOADS
@pytest.mark.parametrize(
    ("spelling", "bare", "printed"),
    [(JOB_INTERVAL, "15", "15s"), (LOAD_INTERVAL, "15", "15s"), (INTERVAL, "1500", "1.5s")],
)
def test_show_create_prints_the_interval_as_it_was_spelled(
    files: Node, kind: Kind, *, spelling: str, bare: str, printed: str
) -> None:
    create(files, kind, **{spelling: bare})

    given = shown(files, kind)

    assert {key: given.get(key) for key in SPELLINGS if key in given} == {spelling: printed}
    assert properties(files).interval == timedelta(seconds=float(printed[:-1]))


@EVERY_KIND
@pytest.mark.parametrize(
    ("spelling", "bare", "printed"),
    [(JOB_INTERVAL, "16", "16s"), (LOAD_INTERVAL, "17", "17s"), (INTERVAL, "18500", "18.5s")],
)
def test_t40_alter_replaces_the_interval_in_every_spelling(
    altered: Node, kind: str, *, spelling: str, bare: str, printed: str
) -> None:
    run(altered, KINDS[kind].alter, named(kind), {spelling: bare})

    given = shown(altered, KINDS[kind], named(kind))

    assert {key: given[key] for key in SPELLINGS if key in given} == {spelling: printed}
    seconds = float(printed[:-1])
    assert properties(altered, named(kind)).interval == timedelta(seconds=seconds)


@EVERY_KIND
@pytest.mark.parametrize(
    ("given", "printed"), [("0", "0s"), ("150000", "150s"), ("3 min", "180s")]
)
def test_t40_alter_changes_the_interval_during_backlog(
    altered: Node, kind: str, given: str, printed: str
) -> None:
    run(altered, KINDS[kind].alter, named(kind), {LONGER: given})

    assert shown(altered, KINDS[kind], named(kind))[LONGER] == printed
    seconds = timedelta(seconds=float(printed[:-1]))
    assert properties(altered, named(kind)).cadence.interval_backlog == seconds


@EVERY_KIND
def test_t40_alter_changes_the_marks_of_the_lag(altered: Node, kind: str) -> None:
    marks = {HIGH: "2 min", LOW: "500 ms"}

    run(altered, KINDS[kind].alter, named(kind), marks)

    assert shown(altered, KINDS[kind], named(kind)).items() >= marks.items()
    found = properties(altered, named(kind)).cadence.marks
    assert found == LagMarks(unit=LagUnit.TIME, high=120, low=0.5)


@EVERY_KIND
def test_t40_alter_changes_the_batch_limits_during_backlog(altered: Node, kind: str) -> None:
    larger = {f"{key}{SUFFIX}": text for key, text in KINDS[kind].larger.items()}

    run(altered, KINDS[kind].alter, named(kind), larger)

    assert shown(altered, KINDS[kind], named(kind)).items() >= larger.items()
    limits = properties(altered, named(kind)).batch_limits
    assert all(backlog and backlog > normal for normal, backlog in limits.values())


@EVERY_KIND
@pytest.mark.parametrize(
    ("target", "expected"), [("40 s", timedelta(seconds=40)), ("downstream", None)]
)
def test_t40_alter_changes_the_target_lag(
    altered: Node, kind: str, *, target: str, expected: timedelta | None
) -> None:
    run(altered, KINDS[kind].alter, named(kind), {FRESHNESS: target})

    assert shown(altered, KINDS[kind], named(kind))[FRESHNESS] == target
    assert properties(altered, named(kind)).cadence.target == expected


@EVERY_KIND
def test_t40_a_target_lag_and_an_interval_replace_each_other(altered: Node, kind: str) -> None:
    steps: list[Options] = [{FRESHNESS: "41 s"}, {INTERVAL: "19s"}, {FRESHNESS: "42 s"}]

    found = [altered_to(altered, kind, options) for options in steps]

    assert found == steps


def altered_to(node: Node, kind: str, options: Options) -> Options:
    """Alter a job; return its interval or target lag as SHOW CREATE prints them."""
    run(node, KINDS[kind].alter, named(kind), options)
    given = shown(node, KINDS[kind], named(kind))
    return {key: given[key] for key in (*SPELLINGS, FRESHNESS) if key in given}


@LOADS
def test_t40_alter_removes_options(files: Node, kind: Kind) -> None:
    larger = {f"{key}{SUFFIX}": text for key, text in kind.larger.items()}
    create(files, kind, **{LONGER: "0", HIGH: "5 min", LOW: "1 min"}, **larger)

    same = dict.fromkeys((LONGER, *larger), "same")
    run(files, kind.alter, "j", {**same, HIGH: "", LOW: ""})

    assert shown(files, kind).keys().isdisjoint({LONGER, HIGH, LOW, *larger})
    assert properties(files) == kind_defaults(kind)


def kind_defaults(kind: Kind) -> Properties:
    return JobProperties() if kind is JOB else RoutineProperties()


@LOADS
def test_show_create_prints_a_statement_with_the_same_options(files: Node, kind: Kind) -> None:
    larger = {f"{key}{SUFFIX}": text for key, text in kind.larger.items()}
    marks = {HIGH: "5 min", LOW: "1 min"}
    create(files, kind, **{INTERVAL: "2 min", LONGER: "180000"}, **marks, **larger)
    before, text = properties(files), run(files, kind.show_create, "j")

    files.sql(f"{kind.drop}; {text}")

    assert properties(files) == before
    assert run(files, kind.show_create, "j") == text


@LOADS
def test_an_option_that_is_not_given_is_not_printed(files: Node, kind: Kind) -> None:
    create(files, kind)

    printed = shown(files, kind)

    new = {*SPELLINGS, LONGER, HIGH, LOW, FRESHNESS, *(f"{key}{SUFFIX}" for key in kind.limits)}
    assert printed.keys().isdisjoint(new)


def test_t40_an_altered_target_lag_applies_to_the_next_wait(
    open_node: OpenNode, folder: Path
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    create(node, JOB, **{JOB_INTERVAL: "9s"})
    run(node, JOB.alter, "j", {FRESHNESS: "4 s"})
    run(node, JOB.resume, "j")

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda reports: idle(reports) and bool(clock.runner_waits))

    waits = [wait.total_seconds() for wait in clock.runner_waits]
    assert 1 <= min(waits) <= max(waits) <= 4
