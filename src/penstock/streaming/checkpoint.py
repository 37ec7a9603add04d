"""The checkpoint folder of a streaming table: Spark's files, and the plans of Penstock.

The folder contains ``spark/``, which Spark writes, ``plans/``, ``pins/``, ``notes/`` and
``frozen.json``.
Penstock writes its own files atomically and durably. Spark never syncs a file, so a power loss
can truncate or lose the newest files. ``settle`` syncs Spark's files of one batch.

Invariant: the loop settles a batch before it commits the next batch to the table. So an
unreadable commit of Spark belongs to the table's newest batch or to a later one.
"""

import fcntl
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.errors import Code, ExternalError, InvariantError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.query import Lookup
from penstock.model.split import Note, SplitRead
from penstock.storage.local import LocalStore
from penstock.storage.store import (
    FolderMissingError,
    ObjectMeta,
    ObjectMissingError,
    storage_error,
)
from penstock.streaming.recovery import NO_BATCH, PUT_BACK_HINT, Found

PLAN_FORMAT = 1
# The JVM of the owner locks this file in the folder of the job.
OWNER_LOCK = "owner.lock"
# RESTORE needs the plans of this many batches. Spark retains as many batches of its own files.
BATCHES_RETAINED = 20
_COMMIT_VERSION = "v2"
_VERSION = re.compile(r"v\d+")
# Spark writes this line for a source without an offset.
_NO_OFFSET = "-"
_FROZEN = "frozen.json"
_OFFSET_LINES_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """The part of a plan that one source reads; positions are texts of the source."""

    table: str
    begin: str
    end: str
    high_ms: int | None = None
    idle: bool = False
    # The reads of each slot.
    shares: tuple[tuple[SplitRead, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The input of one batch: positions, watermark and versions of static tables."""

    format: int = PLAN_FORMAT
    epoch: int
    batch: int
    # The value of the first clock row. The slot of a row is its value minus ``first``.
    first: int
    slots: int
    # Whether the plan changes a position.
    moves: bool
    # Whether the table has a commit of the batch, although the plan changes no position.
    in_table: bool = False
    watermark_ms: int
    # ``closes_ms`` is the watermark of the last plan, and ``drops_ms`` of the plan before it.
    # The batch closes state up to ``closes_ms``, and drops rows up to ``drops_ms``.
    closes_ms: int = 0
    drops_ms: int = 0
    # Event times after this one do not raise the highest event time of their stream.
    high_max_ms: int = 0
    # The input table that holds back the watermark; empty if there is none.
    held_by: str = ""
    pins: Mapping[str, int]
    sources: Mapping[str, SourcePlan]

    def without_shares(self) -> "BatchPlan":
        """Return the plan for an attachment; the shares can be computed from the positions."""
        sources = {name: replace(source, shares=()) for name, source in self.sources.items()}
        return replace(self, sources=sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReport:
    """The report of one reader task: the notes of its reads, or the text of its refusal."""

    notes: tuple[Note, ...] = ()
    refusal: str = ""


def parse_plan(text: str) -> BatchPlan:
    """Read a plan from its JSON; raise UserError if its format is unknown."""
    data = json.loads(text)
    # The format is checked first, because another format may have other fields.
    if data.get("format") != PLAN_FORMAT:
        raise UserError(
            f"plan of batch {data.get('batch')} has format {data.get('format')}, but this "
            f"version of Penstock reads format {PLAN_FORMAT}",
            code=Code.CANNOT_RESUME_ERR,
            hint="Run the streaming table with the version of Penstock that wrote the plan.",
        )
    return from_data(BatchPlan, data)


class CheckpointFolder:
    """The checkpoint of one streaming table; only the owner of the table uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = LocalStore()
        # The state files that were synced, with their size and time at the sync.
        self._settled: frozenset[ObjectMeta] = frozenset()

    @property
    def spark(self) -> Path:
        """The checkpoint location of the Spark query."""
        return self.path / "spark"

    def create(self, checkpoint_id: str, *, frozen: Mapping[str, str]) -> None:
        """Create the folder; write the metadata last, as proof that the folder is complete."""
        self._write(_FROZEN, json.dumps(dict(frozen), sort_keys=True))
        self._write("spark/metadata", json.dumps({"id": checkpoint_id}, separators=(",", ":")))

    def delete(self) -> None:
        """Delete the folder with everything in it."""
        self._store.delete_below(f"{self.path}/")

    def frozen(self) -> dict[str, str]:
        """Return the formats, partitions and settings that must not change."""
        found: dict[str, str] = json.loads(self._read(_FROZEN))
        return found

    def _frozen_readable(self) -> bool:
        try:
            return isinstance(self.frozen(), dict)
        except (ObjectMissingError, ValueError):
            return False

    def write_plan(self, plan: BatchPlan) -> None:
        """Store the plan of a batch durably."""
        self._write(f"plans/{plan.batch}.json", to_text(plan))

    def plan(self, batch: int) -> BatchPlan | None:
        """Return the plan of a batch; None if it is not stored or is not JSON."""
        try:
            return parse_plan(self._read(f"plans/{batch}.json"))
        except (ObjectMissingError, ValueError):
            return None

    def require_plan(self, batch: int) -> BatchPlan:
        """Return the plan of a batch; raise InvariantError if it is not stored."""
        plan = self.plan(batch)
        if plan is None:
            raise InvariantError(f"checkpoint {self.path} has no plan of batch {batch}")
        return plan

    def write_pins(self, batch: int, pins: Mapping[str, Lookup]) -> None:
        """Store the version and the list of files of each static table of a batch, durably."""
        self._write(f"pins/{batch}.json", to_text(pins))

    def pins(self, batch: int) -> dict[str, Lookup] | None:
        """Return the static tables of a batch, by name; None if they are not readable."""
        try:
            found = json.loads(self._read(f"pins/{batch}.json"))
        except (ObjectMissingError, ValueError):
            return None
        return {name: from_data(Lookup, data) for name, data in found.items()}

    def require_pins(self, batch: int) -> dict[str, Lookup]:
        """Return the static tables of a batch; raise InvariantError if they are not stored."""
        pins = self.pins(batch)
        if pins is None:
            raise InvariantError(
                f"checkpoint {self.path} has no static tables of batch {batch}"
            )
        return pins

    def write_report(
        self, batch: int, split: str, slot: int, report: ShareReport, *, durable: bool
    ) -> None:
        """Store the report of a reader task; a retry of the task replaces the report."""
        path = self._report(batch, split, slot)
        if durable:
            self._write(str(path.relative_to(self.path)), to_text(report))
            return
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        unfinished.write_text(to_text(report), "utf-8")
        unfinished.replace(path)

    def report(self, batch: int, split: str, slot: int) -> ShareReport | None:
        """Return the report of a reader task; None if it is missing or truncated."""
        try:
            return from_text(ShareReport, self._report(batch, split, slot).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def clear_reports(self, batch: int) -> None:
        """Create an empty folder for the reports of a batch; keep the previous batch's reports.

        After a failed attempt, the batch is planned again from the previous batch's reports.
        """
        folder = self.path / "notes" / str(batch)
        try:
            for old in {*folder.parent.glob("*")} - {folder.with_name(str(batch - 1))}:
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(f'folder "{folder}" could not be created', error) from error

    def _report(self, batch: int, split: str, slot: int) -> Path:
        return self.path / "notes" / str(batch) / f"{split}-{slot}.json"

    def find(self) -> Found:
        """Read the state of the folder; nothing is changed."""
        if not self._store.is_folder(str(self.path)):
            return Found()
        commits, offsets = self._batches("spark/commits"), self._batches("spark/offsets")
        truncated: list[str] = []
        if commits and self._commit_entry(commits[-1]) is None:
            last = commits.pop()
            # The batch after an unreadable commit is not in the table, so it can be repeated.
            truncated = [_commit(last), *(_offset(n) for n in offsets if n > last)]
            offsets = [n for n in offsets if n <= last]
        committed = commits[-1] if commits else NO_BATCH
        unreadable = [n for n in offsets if n > committed and not self._offset_readable(n)]
        opened = max((n for n in offsets if n not in unreadable), default=NO_BATCH)
        state = self._files("spark/state")
        missing = [] if self._frozen_readable() else [_FROZEN]
        if committed != NO_BATCH:
            missing += self._missing(committed, state)
        return Found(
            exists=True,
            checkpoint_id=self._checkpoint_id(),
            committed=committed,
            opened=opened,
            in_table=self._in_table(),
            missing=tuple(missing),
            truncated=(*truncated, *(_offset(n) for n in unreadable)),
        )

    def opened_at(self, batch: int) -> datetime:
        """Return when Spark opened a batch; the query uses this time as the current time."""
        metadata = json.loads(self._read(_offset(batch)).splitlines()[1])
        return datetime.fromtimestamp(metadata["batchTimestampMs"] / 1_000, UTC)

    def delete_truncated(self, found: Found) -> None:
        """Delete the files that Spark cannot read; the batch is opened again."""
        for name in found.truncated:
            path = self.path / name
            # Spark cannot read the next file of this name if an old checksum is left.
            for victim in (path, path.with_name(f".{path.name}.crc")):
                _delete(victim)
        self._store.sync({str((self.path / name).parent) for name in found.truncated})

    def settle(self, batch: int) -> tuple[str, ...]:
        """Sync Spark's files of a batch; return them in the order in which to copy them.

        The offset of the next batch is synced, too. Before batch 0, only this offset exists.
        Commits are last, so that a commit in a copy never names a missing file. All new state
        files are synced, also files that the commit does not name. Spark writes snapshots
        later, and then deletes the older files that the snapshots replace.
        """
        state = frozenset(self._files("spark/state"))
        done = () if batch == NO_BATCH else (f"{self.path}/{_commit(batch)}",)
        missing = [*self._missing(batch, state)] if done else []
        opened = f"{self.path}/{_offset(batch + 1)}"
        if self._store.head(opened) is None:
            missing.append(_offset(batch + 1))
        if missing:
            raise UserError(
                f'checkpoint is damaged: "{missing[0]}" is missing or unreadable',
                code=Code.CHECKPOINT_DAMAGED_ERR,
                detail=f"Batch {batch} of {self.path} cannot be synced.",
                hint=PUT_BACK_HINT,
            )
        new = sorted(meta.key for meta in state - self._settled)
        files = (*new, opened, *done)
        for key in files:
            self._sync(key)
        for folder in sorted({f for key in files for f in self._folders(key)}):
            self._sync(folder)
        self._settled = state
        return files

    def prune(self, batch: int) -> None:
        """Delete plans and pins that are more than ``BATCHES_RETAINED`` older than a batch.

        The batch must be the newest one in the table: recovery needs every later plan.
        """
        for folder in ("plans", "pins"):
            for number in self._batches(folder, suffix=".json"):
                if number < batch - BATCHES_RETAINED:
                    _delete(self.path / folder / f"{number}.json")

    def _write(self, name: str, text: str) -> None:
        self._store.write(f"{self.path}/{name}", text.encode())

    def _read(self, name: str) -> str:
        return self._store.read_bytes(f"{self.path}/{name}").decode()

    def _files(self, name: str) -> list[ObjectMeta]:
        """Return the files below a folder; none if the folder does not exist."""
        try:
            return [*self._store.list(f"{self.path}/{name}/", selection=_Visible())]
        except FolderMissingError:
            return []

    def _batches(self, name: str, *, suffix: str = "") -> list[int]:
        """Return the numbers of the files in a folder, in ascending order."""
        names = (Path(meta.key).name.removesuffix(suffix) for meta in self._files(name))
        return sorted(int(text) for text in names if text.isascii() and text.isdecimal())

    def _checkpoint_id(self) -> str | None:
        with suppress(ObjectMissingError, ValueError, KeyError, TypeError):
            return str(json.loads(self._read("spark/metadata"))["id"])
        return None

    def _in_table(self) -> dict[int, bool]:
        plans = map(self.plan, self._batches("plans", suffix=".json"))
        return {plan.batch: plan.moves or plan.in_table for plan in plans if plan is not None}

    def _offset_readable(self, batch: int) -> bool:
        try:
            version, *lines = self._read(_offset(batch)).splitlines()
            return (
                _VERSION.fullmatch(version) is not None
                and len(lines) >= _OFFSET_LINES_MIN - 1
                and all(
                    line == _NO_OFFSET or isinstance(json.loads(line), dict) for line in lines
                )
            )
        except (ObjectMissingError, ValueError):
            return False

    def _commit_entry(self, batch: int) -> tuple[str, dict[str, Any]] | None:
        """Return the version and the values of a commit; None if it is unreadable."""
        try:
            version, line = self._read(_commit(batch)).splitlines()
            values = json.loads(line)
        except (ObjectMissingError, ValueError):
            return None
        return (version, values) if isinstance(values, dict) else None

    def _missing(self, batch: int, state: Iterable[ObjectMeta]) -> Iterator[str]:
        """Yield the files of a committed batch that are missing or unreadable."""
        if not self._offset_readable(batch):
            yield _offset(batch)
        entry = self._commit_entry(batch)
        # A commit of version 1 does not name its state files.
        if entry is None or entry[0] != _COMMIT_VERSION:
            yield _commit(batch)
            return
        # Either the file of changes or the snapshot must exist. An empty file was truncated.
        present = {Path(meta.key).stem for meta in state if meta.size_bytes}
        for operator, partitions in entry[1]["stateUniqueIds"].items():
            for partition, store_ids in enumerate(partitions):
                names = (f"{batch + 1}_{store_id}" for store_id in store_ids)
                for name in names:
                    if name not in present:
                        yield f"spark/state/{operator}/{partition}/{name}"

    def _folders(self, key: str) -> list[str]:
        parents = Path(key).parents
        return [str(folder) for folder in parents if folder.is_relative_to(self.path)]

    def _sync(self, key: str) -> None:
        """Sync a file or folder; Spark may have deleted an old state file meanwhile."""
        try:
            self._store.sync([key])
        except ExternalError:
            if Path(key).exists():
                raise


class _Visible:
    """Selects all files but Spark's temporary files and checksums, which start with a dot."""

    def matches(self, key: str) -> bool:
        return not Path(key).name.startswith(".")

    def may_contain(self, folder: str) -> bool:
        return not Path(folder).name.startswith(".")


def _commit(batch: int) -> str:
    return f"spark/commits/{batch}"


def _offset(batch: int) -> str:
    return f"spark/offsets/{batch}"


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(f'file "{path}" could not be deleted', error) from error


def delete_unused(folder: Path) -> None:
    """Delete the checkpoints of a job that was dropped, unless a process still uses them.

    Such a process deletes the checkpoints when it ends.
    """
    lock = folder / OWNER_LOCK
    if not folder.exists():
        return
    try:
        with lock.open("a") as file:
            # Java's file locks are POSIX locks, too.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
