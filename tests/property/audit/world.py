"""A source of files with the real catalog behind it, driven as the epoch loop drives it."""

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
from penstock.sources.source import Poll, SourceServices
from penstock.storage.options import Choice, StoreOptions
from penstock.storage.store import ObjectMeta, Store
from penstock.storage.uris import Uri
from tests.contract.catalog.building import JOB, commit, create_job, move
from tests.property.audit.bucket import Asked, ListingFailedError, MemoryBucket
from tests.property.audit.promise import Promise
from tests.property.audit.steps import (
    Backup,
    Change,
    Crash,
    Delete,
    Ending,
    History,
    Load,
    Look,
    Move,
    Outcome,
    Put,
    Restore,
    Round,
    SetClock,
    Setup,
    Step,
    Wait,
)

ROUNDS_MAX = 60
PLAIN_LOOK = Look()
PLAIN_LOAD = Load()
START = datetime(2026, 1, 1, tzinfo=UTC)


def play(history: History) -> None:
    """Play a history with a check at every step, and one after the last audit."""
    with world_of(history.setup) as world:
        world.take_all(history.steps)
        world.come_to_rest()


@contextmanager
def world_of(setup: Setup) -> Iterator["World"]:
    """Give a world in which a look keeps so many files, and asks the index for so many."""
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
    """Time that passes when the test says so; what the clock shows may be set."""

    def __init__(self) -> None:
        self._shown = START
        self._passed = timedelta()

    def now(self) -> datetime:
        return self._shown

    def monotonic(self) -> float:
        return self._passed.total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.let_pass(timeout)
        return event.is_set()

    def let_pass(self, duration: timedelta) -> None:
        self._shown += duration
        self._passed += duration

    def set_by(self, difference: timedelta) -> None:
        self._shown += difference


class World:
    """One job: its bucket, its table as a chain of commits, its catalog, its owner."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = WorldClock()
        self.bucket = MemoryBucket(setup.order)
        self.promise = Promise(setup.place, setup.rules)
        self.catalog = open_catalog("sqlite://", clock=self.clock)
        create_job(self.catalog)
        self.chain: list[Attachment] = []
        self.source: FilesSource | None = None
        self._saved: bytes | None = None
        # Whether a pass has begun, the last look may be planned from, and it saw everything.
        self._begun = self._looked = self._complete = False
        self._audited_at: float | None = None
        self._notices: tuple[tuple[str, int], ...] = ()

    def take_all(self, steps: Iterable[Step]) -> None:
        """Let things happen one after the other."""
        for step in steps:
            self.take(step)

    def take(self, step: Step) -> None:
        """Let one thing happen."""
        match step:
            case Put() | Delete():
                self.touch(step)
            case Look():
                self.look(step)
            case Load():
                self.load(step)
            case Round(files_max=files_max):
                self.round(files_max)
            case Wait(minutes=minutes):
                self.clock.let_pass(timedelta(minutes=minutes))
            case SetClock(minutes=minutes):
                self.clock.set_by(timedelta(minutes=minutes))
            case _:
                self._interrupt(step)

    def _interrupt(self, step: Step) -> None:
        """Let happen what the owner does not survive."""
        self.source = None
        match step:
            case Move(behind=behind):
                self.move(behind)
            case Change(rules=rules):
                self.promise.rules = rules
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
        if not self.bucket.holds(step.key):
            self.promise.gone(step.key)

    def move(self, behind: str | None) -> None:
        """Set the offset, as a commit of the chain."""
        floor = After(value=behind) if behind else Horizon()
        self.chain.append(move(self._number(), floor))
        self.promise.move(behind)

    def look(self, step: Look = PLAIN_LOOK) -> None:
        """Look at the source, and check what that cost."""
        source = self._owner()
        self.bucket.files_before_failure = step.files_before_failure
        self.bucket.meanwhile = lambda: self._meanwhile(step)
        self.promise.look(self.clock.now(), self.bucket.files())
        rested = self._rested(source)
        if rested or not self._begun:
            # An owner begins with an audit.
            audit = not self._begun or not self.setup.ordered_listing
            self.promise.begin_pass(self.bucket.files(), audit=audit)
            self._begun = True
        at = len(self.bucket.stores)
        found = self._poll(source)
        store = self.bucket.stores[at]
        assert source.take_requests() == store.requests, "requests are miscounted"
        if found is not None and found.waiting.complete:
            self.promise.looked()
        if found is None or source is not self.source:
            # Whatever a former owner has found, it cannot commit it. It may have forgotten old
            # files that its successor has just loaded, which then looks for them once more.
            self._audited_at = None
            return
        waiting = found.waiting
        self._looked, self._complete, self._notices = True, waiting.complete, found.notices
        assert waiting.items is not None
        assert waiting.items <= self.setup.window_files, "a look keeps too much"
        self._check_cost(store.asked, rested=rested)
        self._check_pass(source)

    def _poll(self, source: FilesSource) -> Poll | None:
        before = self.bucket.files()
        try:
            return source.poll(self.state().progress, seen=lambda _: None)
        except ListingFailedError:
            self.source = None
        except UserError as error:
            if source is self.source:
                self._help(error, before=before)
        finally:
            self.bucket.meanwhile = self.bucket.files_before_failure = None
        return None

    def load(self, step: Load = PLAIN_LOAD) -> bool:
        """Plan an epoch and let it end; answer whether there was one."""
        if self.source is None or not self._looked:
            self.look()
        if self.source is None or not self._looked:
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
                self._looked = False
            case Outcome.CRASHED_BEFORE:
                self.source = None
            case Outcome.CRASHED_AFTER:
                self._commit(plan)
                self.source = None
        return True

    def round(self, files_max: int = 100) -> bool:
        """Look and load all of it; answer whether nothing was left to do."""
        self.look()
        if self.source is None:
            return False
        idle = self._complete
        while self.load(Load(files_max)):
            idle = False
        return idle

    def come_to_rest(self) -> None:
        """Let a last audit pass over a bucket that does not change, and check everything."""
        if self.setup.ending is Ending.INTERVAL:
            self._rest()
            self.clock.let_pass(self.setup.audit_interval)
        else:
            self.source = None
        self._rest()
        ((name, modified),) = self._notices
        assert name == "files_modified"
        self.promise.check_at_rest(self.bucket.files(), modified_files=modified)
        self.promise.check_index(self.catalog.files_of(JOB).known(self.setup.place.keys))

    def _rest(self) -> None:
        assert any(self.round() for _ in range(ROUNDS_MAX)), "it never comes to rest"

    def state(self) -> JobState:
        """Answer what the catalog knows of the job."""
        state = self.catalog.job_by_id(JOB)
        assert state is not None
        return state

    def open_source(self) -> FilesSource:
        """Open the source with nothing but what was stored."""
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
            self._begun = self._looked = self._complete = False
            self._audited_at = None
            self._notices = ()
        return self.source

    def _options(self) -> FilesOptions:
        rules = self.promise.rules
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

    def _meanwhile(self, step: Look) -> None:
        for change in step.meanwhile:
            self.touch(change)
        if step.taken_over:
            self.source = None
            self.round()

    def _help(self, error: UserError, *, before: Mapping[str, ObjectMeta]) -> None:
        """Do what the hint of a pause says."""
        self.source = None
        assert error.code is Code.CANNOT_RESUME_ERR
        key = error.message.split('"')[1]
        self.promise.check_pause(key, before=before, after=self.bucket.files())
        if self.setup.puts_back:
            file = self.promise.loaded[key]
            self.bucket.objects[key] = ObjectMeta(
                key=key,
                etag=file.etag,
                size_bytes=file.size_bytes,
                modified_at=file.modified_at,
            )
        else:
            self.move(key[:-1])

    def _rested(self, source: FilesSource) -> bool:
        return self._looked and self._complete and source.waiting().items == 0

    def _check_pass(self, source: FilesSource) -> None:
        if self._rested(source):
            self.promise.end_pass()

    def _check_cost(self, asked: Sequence[Asked], *, rested: bool) -> None:
        """Check that a prefix is listed once, and between audits only behind what is loaded."""
        prefixes = [one.prefix for one in asked]
        assert len(prefixes) == len(set(prefixes)), "a prefix is listed twice"
        newest = {prefix: self.promise.newest(prefix) for prefix in prefixes}
        now = self.clock.monotonic()
        full = any(one.after < newest[one.prefix] for one in asked)
        if rested and full and self.setup.ordered_listing and self._audited_at is not None:
            passed = timedelta(seconds=now - self._audited_at)
            assert passed >= self.setup.audit_interval, "an idle look lists everything"
        if self._audited_at is None or (rested and full):
            self._audited_at = now

    def _commit(self, plan: EpochPlan) -> None:
        self.promise.take(plan.items)
        attachment = commit(self._number())
        self.chain.append(replace(attachment, progress=plan.progress, items=plan.items))

    def _number(self) -> int:
        # The opening commit has number 1.
        return len(self.chain) + 2

    def _catch_up(self) -> None:
        """Let the catalog follow the table."""
        for attachment in self.chain[self.state().number - 1 :]:
            self.catalog.apply_commit(JOB, attachment, table_version=1, commit_seconds=0)

    def _connection(self) -> sqlite3.Connection:
        engine = self.catalog._database._reader
        return cast("sqlite3.Connection", engine.raw_connection().driver_connection)
