"""What every kind of source must do: plan each record once, from what was stored alone.

A source remembers nothing durable. What a plan says becomes progress by being committed to a
real catalog, and every source is opened again from that catalog, as after a restart.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from penstock.catalog.catalog import Catalog
from penstock.job_source import open_files
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.files import FileFormat, FilesOptions
from penstock.model.job import JobDefinition, JobProperties, JobState
from penstock.model.position import After, SplitProgress
from penstock.sources.source import Backlog, Source
from penstock.vault import Vault
from tests.contract.catalog.building import (
    DEFINITION,
    FIRST,
    JOB,
    TABLE,
    MovableClock,
    SqliteStore,
    commit,
    created,
    move,
)

EVERYTHING = JobProperties().limits
ONE = JobProperties(batch_files_max=1).limits


class World(Protocol):
    """One kind of source with something in it, and a catalog that outlives the source."""

    def put(self, *names: str) -> None:
        """Let records arrive; names that sort later stand later in the source."""
        ...

    def change(self, name: str) -> None:
        """Change records that may have been loaded already."""
        ...

    def open(self) -> Source:
        """Open catalog and source with nothing kept in memory."""
        ...

    def state(self) -> JobState:
        """Answer what the catalog remembers."""
        ...

    def commit(self, plan: EpochPlan, *, number: int | None = None) -> None:
        """Store what a plan says, as the next commit or as the one with a number."""
        ...

    def move(self, name: str) -> None:
        """Store that reading begins behind a name, as ALTER does."""
        ...

    def names(self, plan: EpochPlan | None) -> list[str]:
        """Answer what a plan is about to read."""
        ...


class FilesWorld:
    """Files of a folder."""

    def __init__(self, tmp_path: Path) -> None:
        self._folder = tmp_path / "in"
        self._folder.mkdir()
        self._clock = MovableClock()
        self._key_file = tmp_path / "secret.key"
        self._store = SqliteStore(tmp_path, self._clock)
        uri = f"file://{self._folder}/"
        source = FilesOptions(uri=uri, format=FileFormat.JSON)
        self._create(replace(DEFINITION, source=source))

    def put(self, *names: str) -> None:
        for name in names:
            (self._folder / name).write_text(f'{{"id": "{name}"}}\n')

    def change(self, name: str) -> None:
        (self._folder / name).write_text('{"id": "changed"}\n')

    def open(self) -> Source:
        catalog = self._store.open()
        vault = Vault(catalog, key_file=self._key_file)
        return open_files(self._of(catalog), catalog=catalog, vault=vault, clock=self._clock)

    def state(self) -> JobState:
        return self._of(self._store.open())

    def commit(self, plan: EpochPlan, *, number: int | None = None) -> None:
        attachment = commit(number or self.state().number + 1)
        attachment = replace(attachment, progress=plan.progress, files=plan.files)
        self._store.open().apply_commit(JOB, attachment, table_version=1, commit_seconds=0)

    def move(self, name: str) -> None:
        attachment = move(self.state().number + 1, After(value=str(self._folder / name)))
        self._store.open().apply_commit(JOB, attachment, table_version=1, commit_seconds=0)

    def names(self, plan: EpochPlan | None) -> list[str]:
        return [] if plan is None else [Path(file.key).name for file in plan.files]

    def _create(self, definition: JobDefinition) -> None:
        catalog = self._store.open()
        catalog.create_table(TABLE)
        body = created()
        catalog.create_job(JOB, replace(body, definition=definition, generation=FIRST))

    @staticmethod
    def _of(catalog: Catalog) -> JobState:
        state = catalog.job_by_id(JOB)
        assert state is not None
        return state


WORLDS: tuple[Callable[[Path], World], ...] = (FilesWorld,)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    kind: Callable[[Path], World] = request.param
    return kind(tmp_path)


def look(source: Source, progress: tuple[SplitProgress, ...]) -> Backlog:
    """Look at the source anew, whatever it says meanwhile."""
    return source.discover(progress, listed=lambda _seen: None)


def plan(source: Source, world: World, limits: EpochLimits = EVERYTHING) -> EpochPlan:
    """Look, and take the next epoch's worth."""
    look(source, world.state().progress)
    planned = source.plan(world.state().progress, limits=limits)
    assert planned is not None
    return planned


def test_a_source_with_nothing_new_gives_no_plan(world: World) -> None:
    source = world.open()

    backlog = look(source, world.state().progress)

    assert (backlog.files, backlog.size_bytes, backlog.complete) == (0, 0, True)
    assert source.plan(world.state().progress, limits=EVERYTHING) is None


def test_everything_is_planned_once_and_in_order(world: World) -> None:
    world.put("b", "c", "a")
    source = world.open()
    progress = world.state().progress
    look(source, progress)

    planned = [source.plan(progress, limits=ONE) for _ in range(4)]

    assert [world.names(one) for one in planned] == [["a"], ["b"], ["c"], []]


def test_what_is_planned_no_longer_waits(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    before = look(source, world.state().progress)

    source.plan(world.state().progress, limits=ONE)

    assert (before.files, source.waiting().files) == (2, 1)
    assert 0 < source.waiting().size_bytes < before.size_bytes


def test_a_plan_that_was_not_committed_is_made_again_by_the_next_look(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    first = plan(source, world)

    second = plan(source, world)

    assert second == first
    assert world.names(second) == ["a", "b"]


def test_a_look_forgets_what_an_earlier_look_left_unplanned(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    plan(source, world, ONE)
    world.put("c")

    again = plan(source, world)

    assert world.names(again) == ["a", "b", "c"]
    assert source.waiting().files == 0


def test_what_came_after_the_look_waits_for_the_next_one(world: World) -> None:
    world.put("a")
    source = world.open()
    look(source, world.state().progress)
    world.put("b")

    planned = source.plan(world.state().progress, limits=EVERYTHING)

    assert world.names(planned) == ["a"]


def test_t11_a_source_opened_again_goes_on_behind_what_was_committed(world: World) -> None:
    world.put("a", "b", "c")
    world.commit(plan(world.open(), world, ONE))

    planned = plan(world.open(), world)

    assert world.names(planned) == ["b", "c"]


def test_t11_a_source_opened_again_plans_nothing_when_all_was_committed(world: World) -> None:
    world.put("a", "b")
    world.commit(plan(world.open(), world))
    source = world.open()

    backlog = look(source, world.state().progress)

    assert backlog.files == 0
    assert source.plan(world.state().progress, limits=EVERYTHING) is None


def test_t11_a_commit_moves_the_position_and_a_look_or_a_plan_does_not(world: World) -> None:
    world.put("a", "b")
    before = world.state().progress
    planned = plan(world.open(), world)
    looked = world.state().progress

    world.commit(planned)

    assert looked == before
    assert world.state().progress == planned.progress != before


def test_t11_positions_that_were_written_and_read_give_the_same_plan(world: World) -> None:
    world.put("a", "b")
    world.commit(plan(world.open(), world, ONE))
    progress = world.state().progress
    written = tuple(from_text(SplitProgress, to_text(split)) for split in progress)
    source = world.open()
    look(source, written)

    planned = source.plan(written, limits=EVERYTHING)

    assert written == progress
    assert planned == plan(world.open(), world)


def test_t11_a_commit_that_is_replayed_changes_nothing(world: World) -> None:
    world.put("a", "b")
    first = plan(world.open(), world, ONE)
    world.commit(first)
    number = world.state().number
    world.commit(plan(world.open(), world, ONE))
    before = world.state()

    world.commit(first, number=number)

    assert world.state() == before
    assert look(world.open(), before.progress).files == 0


def test_t11_a_position_moved_back_plans_the_later_ones_again(world: World) -> None:
    world.put("a", "b", "c")
    world.commit(plan(world.open(), world))
    world.move("a")

    planned = plan(world.open(), world)

    assert world.names(planned) == ["b", "c"]


def test_t11_a_position_moved_forward_leaves_out_what_lies_before(world: World) -> None:
    world.put("a", "b", "c")
    world.move("b")

    planned = plan(world.open(), world)

    assert world.names(planned) == ["c"]


def test_t11_progress_stays_behind_the_moved_position_when_plans_are_committed(
    world: World,
) -> None:
    world.put("a", "b", "c")
    world.move("a")
    world.commit(plan(world.open(), world, ONE))

    planned = plan(world.open(), world)

    assert world.names(planned) == ["c"]


def test_a_plan_reaches_at_least_one_however_small_the_limits(world: World) -> None:
    world.put("a", "b")
    limits = JobProperties(batch_bytes_max=1).limits

    planned = plan(world.open(), world, limits)

    assert world.names(planned) == ["a"]


def test_what_was_loaded_and_changed_is_counted_and_not_planned(world: World) -> None:
    world.put("a", "b")
    world.commit(plan(world.open(), world))
    world.change("a")
    source = world.open()

    backlog = look(source, world.state().progress)

    assert backlog.files == 0
    assert source.modified_files == 1


def test_each_look_counts_the_changed_ones_anew(world: World) -> None:
    world.put("a")
    world.commit(plan(world.open(), world))
    world.change("a")
    source = world.open()

    look(source, world.state().progress)
    look(source, world.state().progress)

    assert source.modified_files == 1
