"""An owner that is frozen at any step of a commit cannot commit after it thaws.

Processes start slowly and leases last for seconds. All homes are therefore prepared in
parallel, up to the frozen owner and then up to its successor. Tests that share homes are one
xdist group, so that only one process of pytest prepares them.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice

import pytest

from penstock.clock import SystemClock
from penstock.crashpoints import CrashPoint
from penstock.model.events import GenerationRaised, Outcome
from tests.crash.harness import (
    Ended,
    Home,
    Process,
    Shown,
    assert_exact,
    crash,
    rows_of,
)
from tests.crash.variants import WITHOUT_SPARK, Variant, opened_home

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

STEPS = (
    CrashPoint.RUN_FINISHED,
    CrashPoint.COMMIT_CHECKED,
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.CATALOG_APPLIED,
)
BEFORE_THE_COMMIT = (CrashPoint.RUN_FINISHED, CrashPoint.COMMIT_CHECKED)
STATEMENT_SECONDS_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """The result of a takeover from a frozen owner."""

    home: Home
    lease_end: datetime
    successor: Ended
    before_thaw: Shown
    owner: Ended


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A home whose owner is frozen in its second epoch of four."""

    home: Home
    owner: Process


def of_steps(*steps: CrashPoint) -> pytest.MarkDecorator:
    """Parametrize a test with takeovers from owners that were frozen at these steps."""
    cases = [
        pytest.param(variant, step, marks=pytest.mark.xdist_group(f"takeovers {variant}"))
        for variant in (*WITHOUT_SPARK, Variant.SPARK_FILE)
        for step in _steps_of(variant)
        if step in steps
    ]
    return pytest.mark.parametrize(
        ("takeovers", "point"), cases, indirect=["takeovers"], scope="module"
    )


def _steps_of(variant: Variant) -> tuple[CrashPoint, ...]:
    """Return the steps at which owners are frozen; one step is enough with Spark."""
    return STEPS if variant in WITHOUT_SPARK else (CrashPoint.COMMIT_CHECKED,)


@pytest.fixture(scope="module")
def takeovers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[CrashPoint, Future[Takeover]]]:
    with ExitStack() as stack:
        homes = _homes(stack, request, tmp_path_factory)
        steps = _steps_of(request.param)
        threads = stack.enter_context(ThreadPoolExecutor(len(steps)))
        yield {point: threads.submit(_take_over, next(homes), point) for point in steps}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(variant, marks=pytest.mark.xdist_group(f"frozen homes {variant}"))
        for variant in WITHOUT_SPARK
    ],
)
def frozen_homes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Frozen]]:
    points = {
        "pause before the commit": CrashPoint.COMMIT_CHECKED,
        "pause after the commit": CrashPoint.TABLE_COMMITTED,
        "alter": CrashPoint.COMMIT_CHECKED,
        "drop": CrashPoint.COMMIT_CHECKED,
    }
    with ExitStack() as stack:
        homes = list(islice(_homes(stack, request, tmp_path_factory), len(points)))
        with ThreadPoolExecutor(len(points)) as threads:
            owners = threads.map(_freeze, homes, points.values())
        yield {
            name: Frozen(home=home, owner=owner)
            for name, home, owner in zip(points, homes, owners, strict=True)
        }


def _homes(
    stack: ExitStack, request: pytest.FixtureRequest, factory: pytest.TempPathFactory
) -> Iterator[Home]:
    """Yield any number of homes."""
    while True:
        root = factory.mktemp("home")
        bucket = partial(request.getfixturevalue, "shared_bucket")
        yield stack.enter_context(opened_home(request.param, root, bucket=bucket))


@of_steps(*STEPS)
def test_a_successor_waits_for_the_lease_and_loads_the_rest(
    takeovers: Mapping[CrashPoint, Future[Takeover]], point: CrashPoint
) -> None:
    takeover = takeovers[point].result()

    assert takeover.successor.code == 0
    assert _taken_at(takeover.home) >= takeover.lease_end
    assert takeover.before_thaw.job["files_loaded"] == 4


@of_steps(*STEPS)
def test_a_thawed_owner_repeats_no_row(
    takeovers: Mapping[CrashPoint, Future[Takeover]], point: CrashPoint
) -> None:
    takeover = takeovers[point].result()

    shown = assert_exact(takeover.home, 1, 2, 3, 4)
    assert shown.job == takeover.before_thaw.job


@of_steps(*BEFORE_THE_COMMIT)
def test_the_commit_of_a_thawed_owner_is_refused_and_its_files_are_not_in_the_table(
    takeovers: Mapping[CrashPoint, Future[Takeover]], point: CrashPoint
) -> None:
    home = takeovers[point].result().home

    (refused,) = (
        entry
        for entry in home.node.catalog.ledger(home.node.job("j").id)
        if entry.outcome is Outcome.CANCELLED
    )
    assert refused.reason is not None
    assert refused.number is None
    assert [file for file in home.written_files() if refused.attempt_id in file]
    assert not [file for file in home.files_at(home.location) if refused.attempt_id in file]


@of_steps(*STEPS)
def test_a_thawed_owner_reports_that_it_lost_the_job_and_why(
    takeovers: Mapping[CrashPoint, Future[Takeover]], point: CrashPoint
) -> None:
    takeover = takeovers[point].result()

    assert takeover.owner.code == 0
    assert "notice LEASE_LOST_ERR: job j stopped in this process: " in takeover.owner.output


@pytest.mark.parametrize(
    ("case", "loaded"), [("pause before the commit", [1]), ("pause after the commit", [1, 2])]
)
def test_a_pause_returns_quickly_and_holds_although_the_owner_is_frozen(
    frozen_homes: Mapping[str, Frozen], case: str, loaded: list[int]
) -> None:
    home, owner = frozen_homes[case].home, frozen_homes[case].owner

    seconds = _seconds_of(home, "PAUSE JOB j")
    paused = home.shown()
    thawed = _thawed(owner)

    assert seconds < STATEMENT_SECONDS_MAX
    assert paused.job["state"] == "PAUSED"
    assert assert_exact(home, *loaded).job == paused.job
    assert "job j stopped in this process" in thawed.output
    home.node.sql("RESUME JOB j")
    home.node.run()
    assert_exact(home, 1, 2, 3, 4)


def test_an_alter_returns_quickly_and_holds_although_the_owner_is_frozen(
    frozen_homes: Mapping[str, Frozen],
) -> None:
    home, owner = frozen_homes["alter"].home, frozen_homes["alter"].owner
    offset = f"""{{"fileName": "{home.source(3)}"}}"""
    _seconds_of(home, "PAUSE JOB j")

    seconds = _seconds_of(home, f"ALTER JOB j PROPERTIES('offset' = '{offset}')")
    altered = home.shown()
    thawed = _thawed(owner)

    assert seconds < STATEMENT_SECONDS_MAX
    assert home.rows == rows_of(1)
    assert home.shown().job == altered.job
    assert altered.job["position"] == home.source(3)
    assert "job j stopped in this process" in thawed.output
    home.node.sql("RESUME JOB j")
    home.node.run()
    assert_exact(home, 1, 4)


def test_a_drop_returns_quickly_and_holds_although_the_owner_is_frozen(
    frozen_homes: Mapping[str, Frozen],
) -> None:
    home, owner = frozen_homes["drop"].home, frozen_homes["drop"].owner

    seconds = _seconds_of(home, "DROP JOB j")
    thawed = _thawed(owner)

    assert seconds < STATEMENT_SECONDS_MAX
    assert home.node.sql("SHOW JOBS") == []
    assert home.rows == rows_of(1)
    assert "job j stopped in this process" in thawed.output


def _take_over(home: Home, point: CrashPoint) -> Takeover:
    owner = _freeze(home, point)
    lease = home.node.catalog.leases()[home.node.job("j").id]
    successor = home.finish()
    before_thaw = home.shown()
    return Takeover(
        home=home,
        lease_end=lease.expires_at,
        successor=successor,
        before_thaw=before_thaw,
        owner=_thawed(owner),
    )


def _taken_at(home: Home) -> datetime:
    """Return the time of the last takeover."""
    events = home.node.catalog.events(home.node.job("j").id)
    return max(event.at for event in events if isinstance(event.body, GenerationRaised))


def _freeze(home: Home, point: CrashPoint) -> Process:
    home.write(1, 2, 3, 4)
    home.create()
    owner = home.start_run(crash_at=crash(point, count=2, action="stop"))
    owner.wait_until_frozen()
    return owner


def _thawed(owner: Process) -> Ended:
    owner.thaw()
    return owner.wait()


def _seconds_of(home: Home, statement: str) -> float:
    clock = SystemClock()
    started = clock.monotonic()
    home.node.sql(statement)
    return clock.monotonic() - started
