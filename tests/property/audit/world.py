"""A source of files with the real catalog, driven as the epoch loop drives it."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from penstock.catalog.catalog import JobMemory, open_catalog
from penstock.errors import Code, UserError
from penstock.model.epoch import Attachment, EpochPlan
from penstock.model.job import JobState
from penstock.model.job_kinds import JobProperties
from penstock.model.secrets import Sealed
from penstock.model.split import After, Horizon
from penstock.sources.files.kind import FileFormat, FilesOptions
from penstock.sources.files.source import FilesSource
from penstock.sources.source import Poll as PollResult
from penstock.sources.source import SourceServices
from penstock.storage.options import Choice, StoreOptions
from penstock.storage.store import ObjectMeta, Store
from penstock.storage.uris import Uri
from tests.contract.catalog.building import JOB, commit, create_job, move
from tests.property.audit.bucket import ListingFailedError, ListRequest, MemoryBucket
from tests.property.audit.expectation import Expectation
from tests.property.audit.steps import (
    Backup,
    Change,
    Crash,
    Delete,
    Ending,
    History,
    Load,
    Move,
    Outcome,
    Poll,
    Put,
    Restore,
    Round,
    SetClock,
    Setup,
    Step,
    Wait,
)

ROUNDS_MAX = 60
PLAIN_POLL = Poll()
PLAIN_LOAD = Load()
START = datetime(2026, 1, 1, tzinfo=UTC)


def play(history: History) -> None:
    """Run a history with checks at every step and after the last audit."""
    with open_world(history.setup) as world:
        world.run_steps(history.steps)
        world.settle()


@contextmanager
def open_world(setup: Setup) -> Iterator["World"]:
    """Yield a world with the limits of the setup for files per poll and per lookup."""
    world = World(setup)
    with pytest.MonkeyPatch.context() as patch:
        module = "penstock.sources.files.source"
        patch.setattr(f"{module}.WINDOW_FILES", setup.window_files)
        patch.setattr(f"{module}.LOOKUP_FILES", setup.lookup_files)
        try:
            yield world
        finally:
            world.catalog.close()


class WorldClock:
    """A clock that a test advances and sets; setting it does not change monotonic()."""

    def __init__(self) -> None:
        self._shown = START
        self._passed = timedelta()

    def now(self) -> datetime:
        return self._shown

    def monotonic(self) -> float:
        return self._passed.total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.advance(timeout)
        return event.is_set()

    def advance(self, duration: timedelta) -> None:
        self._shown += duration
        self._passed += duration

    def shift(self, difference: timedelta) -> None:
        self._shown += difference


class World:
    """One job with its bucket, its table as a chain of commits, its catalog and its owner."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = WorldClock()
        self.bucket = MemoryBucket(setup.order)
        self.expectation = Expectation(setup.place, setup.rules)
        self.catalog = open_catalog("sqlite://", clock=self.clock)
        create_job(self.catalog)
        self.chain: list[Attachment] = []
        self.source: FilesSource | None = None
        self._saved: bytes | None = None
        # Whether a pass has started, the last poll can be planned, and it saw all files.
        self._started = self._polled = self._complete = False
        self._audited_at: float | None = None
        self._notices: tuple[tuple[str, int], ...] = ()

    def run_steps(self, steps: Iterable[Step]) -> None:
        """Run steps in order."""
        for step in steps:
            self.run_step(step)

    def run_step(self, step: Step) -> None:
        """Run one step."""
        match step:
            case Put() | Delete():
                self.touch(step)
            case Poll():
                self.poll(step)
            case Load():
                self.load(step)
            case Round(files_max=files_max):
                self.round(files_max)
            case Wait(minutes=minutes):
                self.clock.advance(timedelta(minutes=minutes))
            case SetClock(minutes=minutes):
                self.clock.shift(timedelta(minutes=minutes))
            case _:
                self._interrupt(step)

    def _interrupt(self, step: Step) -> None:
        """Run a step that ends the owner."""
        self.source = None
        match step:
            case Move(after=after):
                self.move(after)
            case Change(rules=rules):
                self.expectation.rules = rules
            case Backup():
                self._saved = bytes(self._connection().serialize())
            case Restore() if self._saved is not None:
                self._connection().deserialize(self._saved)
            case _:
                assert isinstance(step, Crash | Restore)

    def touch(self, step: Put | Delete) -> None:
        """Change the bucket."""
        match step:
            case Put(key=key, age_minutes=age, size_bytes=size_bytes):
                written_at = self.clock.now() - timedelta(minutes=age)
                self.bucket.put(key, modified_at=written_at, size_bytes=size_bytes)
            case Delete(key=key):
                self.bucket.delete(key)
        if not self.bucket.has_file(step.key):
            self.expectation.delete(step.key)

    def move(self, after: str | None) -> None:
        """Set the offset, as a commit of the chain."""
        floor = After(value=after) if after else Horizon()
        self.chain.append(move(self._number(), floor))
        self.expectation.move(after)

    def poll(self, step: Poll = PLAIN_POLL) -> None:
        """Poll the source and check the list requests."""
        source = self._owner()
        self.bucket.files_before_failure = step.files_before_failure
        self.bucket.meanwhile = lambda: self._meanwhile(step)
        self.expectation.start_poll(self.clock.now(), self.bucket.files())
        rested = self._rested(source)
        if rested or not self._started:
            # An owner starts with an audit.
            audit = not self._started or not self.setup.ordered_listing
            self.expectation.start_pass(self.bucket.files(), audit=audit)
            self._started = True
        at = len(self.bucket.stores)
        found = self._poll(source)
        store = self.bucket.stores[at]
        assert source.take_requests() == store.requests, "requests are miscounted"
        if found is not None and found.waiting.complete:
            self.expectation.end_poll()
        if found is None or source is not self.source:
            # A former owner cannot commit the files it found. It may have pruned old files
            # that its successor has just loaded. The successor then polls for them again.
            self._audited_at = None
            return
        waiting = found.waiting
        self._polled, self._complete, self._notices = True, waiting.complete, found.notices
        assert waiting.items is not None
        assert waiting.items <= self.setup.window_files, "a poll keeps too many files"
        self._check_cost(store.list_requests, rested=rested)
        self._check_pass(source)

    def _poll(self, source: FilesSource) -> PollResult | None:
        before = self.bucket.files()
        try:
            return source.poll(self.state().progress, report=lambda _: None)
        except ListingFailedError:
            self.source = None
        except UserError as error:
            if source is self.source:
                self._follow_hint(error, before=before)
        finally:
            self.bucket.meanwhile = self.bucket.files_before_failure = None
        return None

    def load(self, step: Load = PLAIN_LOAD) -> bool:
        """Plan an epoch and end it; return whether there was an epoch."""
        if self.source is None or not self._polled:
            self.poll()
        if self.source is None or not self._polled:
            return False
        limits = JobProperties(batch_files_max=step.files_max).limits
        plan = self.source.plan(self.state().progress, limits=limits)
        if plan is None:
            return False
        match step.outcome:
            case Outcome.COMMITTED:
                self._commit(plan)
                self._catch_up()
                self._check_pass(self.source)
            case Outcome.FAILED:
                self._polled = False
            case Outcome.CRASHED_BEFORE:
                self.source = None
            case Outcome.CRASHED_AFTER:
                self._commit(plan)
                self.source = None
        return True

    def round(self, files_max: int = 100) -> bool:
        """Poll and load all found files; return whether there was nothing to do."""
        self.poll()
        if self.source is None:
            return False
        idle = self._complete
        while self.load(Load(files_max)):
            idle = False
        return idle

    def settle(self) -> None:
        """Run a last audit on an unchanged bucket, and check the final state."""
        if self.setup.ending is Ending.INTERVAL:
            self._rest()
            self.clock.advance(self.setup.audit_interval)
        else:
            self.source = None
        self._rest()
        ((name, modified),) = self._notices
        assert name == "files_modified"
        self.expectation.check_settled(self.bucket.files(), modified_files=modified)
        self.expectation.check_index(self.catalog.files_of(JOB).known(self.setup.place.keys))

    def _rest(self) -> None:
        assert any(self.round() for _ in range(ROUNDS_MAX)), "the job never becomes idle"

    def state(self) -> JobState:
        """Return the state of the job in the catalog."""
        state = self.catalog.job_by_id(JOB)
        assert state is not None
        return state

    def open_source(self) -> FilesSource:
        """Open the source from the stored state."""
        self._catch_up()
        state = self.state()
        services = SourceServices(
            state=state,
            clock=self.clock,
            stop=threading.Event(),
            reveal=lambda _, text: text,
            seal=lambda _: Sealed(),
            items=self.catalog.files_of(JOB),
            memory=JobMemory(self.catalog, JOB, state.generation),
            shared=None,
        )
        return FilesSource(self._options(), services=services, open_store=self._open_store)

    def _owner(self) -> FilesSource:
        if self.source is None:
            self.source = self.open_source()
            self._started = self._polled = self._complete = False
            self._audited_at = None
            self._notices = ()
        return self.source

    def _options(self) -> FilesOptions:
        rules = self.expectation.rules
        return FilesOptions(
            uri=self.setup.place.uri,
            format=FileFormat.JSON,
            late_files=rules.late_files,
            late_window=rules.late_window,
            modified_files=rules.modified_files,
            ordered_listing=Choice.TRUE if self.setup.ordered_listing else Choice.FALSE,
            audit_interval=self.setup.audit_interval,
        )

    def _open_store(self, uri: Uri, options: StoreOptions) -> tuple[Store, str]:
        del options
        return cast("Store", self.bucket.open()), uri.key

    def _meanwhile(self, step: Poll) -> None:
        for change in step.meanwhile:
            self.touch(change)
        if step.taken_over:
            self.source = None
            self.round()

    def _follow_hint(self, error: UserError, *, before: Mapping[str, ObjectMeta]) -> None:
        """Follow the hint of a pause."""
        self.source = None
        assert error.code is Code.CANNOT_RESUME_ERR
        key = error.message.split('"')[1]
        self.expectation.check_pause(key, before=before, after=self.bucket.files())
        if self.setup.puts_back:
            file = self.expectation.loaded[key]
            self.bucket.objects[key] = ObjectMeta(
                key=key,
                etag=file.etag,
                size_bytes=file.size_bytes,
                modified_at=file.modified_at,
            )
        else:
            self.move(key[:-1])

    def _rested(self, source: FilesSource) -> bool:
        return self._polled and self._complete and source.waiting().items == 0

    def _check_pass(self, source: FilesSource) -> None:
        if self._rested(source):
            self.expectation.end_pass()

    def _check_cost(self, requests: Sequence[ListRequest], *, rested: bool) -> None:
        """Check that a prefix is listed once, and between audits only after the newest key."""
        prefixes = [one.prefix for one in requests]
        assert len(prefixes) == len(set(prefixes)), "a prefix is listed twice"
        newest = {prefix: self.expectation.newest(prefix) for prefix in prefixes}
        now = self.clock.monotonic()
        full = any(one.after < newest[one.prefix] for one in requests)
        if rested and full and self.setup.ordered_listing and self._audited_at is not None:
            passed = timedelta(seconds=now - self._audited_at)
            assert passed >= self.setup.audit_interval, "an idle poll lists all files"
        if self._audited_at is None or (rested and full):
            self._audited_at = now

    def _commit(self, plan: EpochPlan) -> None:
        self.expectation.load(plan.items)
        attachment = commit(self._number())
        self.chain.append(replace(attachment, progress=plan.progress, items=plan.items))

    def _number(self) -> int:
        # The opening commit has number 1.
        return len(self.chain) + 2

    def _catch_up(self) -> None:
        """Apply the commits of the table to the catalog."""
        for attachment in self.chain[self.state().number - 1 :]:
            self.catalog.apply_commit(JOB, attachment, table_version=1, commit_seconds=0)

    def _connection(self) -> sqlite3.Connection:
        engine = self.catalog._database._reader
        return cast("sqlite3.Connection", engine.raw_connection().driver_connection)
