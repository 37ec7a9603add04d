"""The catalog: durable state of jobs, tables and secrets; one transaction per change.

The catalog follows the tables: progress comes from the newest attachment. An attachment in a
table is applied without a check of the job's generation. Every other change is a
compare-and-set on the generation. All methods are thread-safe.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from penstock.catalog import items, jobs, ledger, relations, secrets, status
from penstock.catalog.database import CommitGapError, Database, LeaseHeldError
from penstock.catalog.items import JobFiles
from penstock.catalog.ledger import LedgerDay
from penstock.catalog.status import JobReport
from penstock.catalog.upgrade import upgrade
from penstock.clock import Clock
from penstock.errors import Code, InvariantError, LeaseLostError, UserError
from penstock.model.backlog import newly_finished
from penstock.model.codec import to_text
from penstock.model.epoch import Attachment, CommitKind, Generation
from penstock.model.events import (
    BacklogFinished,
    Committed,
    EpochEnded,
    Event,
    EventBody,
    GenerationRaised,
    JobCreated,
    Outcome,
)
from penstock.model.job import DesiredState, JobState, Status
from penstock.model.ledger import LedgerEntry
from penstock.model.secrets import SealedSecret, SecretRecord

LOCK_WAIT = timedelta(seconds=15)

_leases = relations.leases
_tables = relations.tables
_LIVE_OF_NODE = (
    _leases.c.node_id == bindparam("node"),
    _leases.c.expires_at > bindparam("now", type_=relations.Instant),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A Delta table that statements can name; DROP TABLE deletes the files of managed ones."""

    name: str
    id: str
    location: str
    managed: bool
    comment: str
    created_at: datetime
    # The column with the event time; None if the table declares no watermark.
    watermark_column: str | None = None
    watermark_delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of a node to run a job until a time."""

    node_id: str
    expires_at: datetime
    live: bool


def open_catalog(url: str, *, clock: Clock, lock_wait: timedelta = LOCK_WAIT) -> "Catalog":
    """Open the catalog at ``sqlite:///path``, or a new one in memory at ``sqlite://``."""
    database = Database(url, clock=clock, lock_wait=lock_wait)
    upgrade(database)
    return Catalog(database)


class Catalog:
    """Durable state; every change is stored when its method returns.

    Invariant: at any instant of the database's clock at most one node holds a live lease of a
    job. An expired lease is never renewed, because another node may have seen it expire. A
    table that a job loads stays registered.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close the database; nothing is lost if this is omitted."""
        self._database.close()

    def create_job(
        self,
        job_id: str,
        body: JobCreated,
        *,
        secrets_owned: Sequence[SealedSecret] = (),
        table: TableRecord | None = None,
    ) -> JobState:
        """Store a new job, its own secrets and, if given, its new table.

        The table and the other secrets that the job refers to must exist.
        """
        with self._database.write() as connection:
            now = self._database.now()
            if table is not None:
                _register(connection, table)
            state = jobs.create(connection, job_id, body, at=now)
            for secret in secrets_owned:
                secrets.create(connection, secret, at=now)
            secrets.require_known(connection, state.definition)
            return state

    def job(self, name: str) -> JobState | None:
        """Return the job with this name."""
        with self._database.read() as connection:
            return jobs.by_name(connection, name)

    def job_by_id(self, job_id: str) -> JobState | None:
        """Return the job with this id."""
        with self._database.read() as connection:
            return jobs.by_id(connection, job_id)

    def jobs(self) -> tuple[JobState, ...]:
        """Return all jobs by name."""
        with self._database.read() as connection:
            return jobs.all_jobs(connection)

    def append(
        self,
        job_id: str,
        *bodies: EventBody,
        expected: Generation | None,
        secrets_owned: Sequence[SealedSecret] = (),
    ) -> JobState:
        """Store events in one transaction if the job's generation is the expected one.

        The secrets that a changed definition refers to must exist. The job's own secrets are
        deleted if its definition no longer refers to them.
        """
        with self._database.write() as connection:
            state = jobs.locked(connection, job_id, expected=expected)
            now = self._database.now()
            for secret in secrets_owned:
                secrets.put(connection, secret, at=now)
            after = jobs.append(connection, state, bodies, at=now)
            if after.definition != state.definition:
                secrets.require_known(connection, after.definition)
                secrets.trim(connection, job_id, states=jobs.all_jobs(connection), at=now)
            return after

    def apply_commit(
        self,
        job_id: str,
        attachment: Attachment,
        *,
        table_version: int | None,
        commit_seconds: float | None,
    ) -> JobState:
        """Apply the next commit of the job's chain; ignore a commit that was applied before."""
        with self._database.write() as connection:
            state = jobs.locked(connection, job_id, expected=None)
            if attachment.number <= state.number:
                return state
            if attachment.number > state.number + 1:
                raise CommitGapError(
                    f'job "{state.name}" is at commit {state.number}, so '
                    f"commit {attachment.number} cannot be applied yet"
                )
            items.apply_commit(connection, job_id, attachment)
            body = Committed(
                attachment=attachment,
                table_version=table_version,
                commit_seconds=commit_seconds,
            )
            finished = [
                BacklogFinished(armed=attachment.backlog.armed, split=split)
                for split in newly_finished(state.backlog, attachment.backlog)
            ]
            now = self._database.now()
            return jobs.append(connection, state, (body, *finished), at=now)

    def writers(self, table_ids: Collection[str]) -> tuple[JobState, ...]:
        """Return the jobs that write one of these tables, by name."""
        with self._database.read() as connection:
            return jobs.writers(connection, table_ids)

    def cancel_open_attempts(self, job_id: str) -> int:
        """Mark attempts that never ended as cancelled; return their number."""
        with self._database.write() as connection:
            attempts = ledger.open_entries(connection, job_id)
            if attempts:
                state = jobs.locked(connection, job_id, expected=None)
                ends = [
                    EpochEnded(
                        attempt_id=attempt.attempt_id,
                        epoch=attempt.epoch,
                        attempt=attempt.attempt,
                        outcome=Outcome.CANCELLED,
                        reason=None,
                    )
                    for attempt in attempts
                ]
                jobs.append(connection, state, ends, at=self._database.now())
            return len(attempts)

    def retire_job(self, job_id: str) -> None:
        """Free the name of a job that has ended; the job can still be shown."""
        with self._database.write() as connection:
            jobs.retire(connection, jobs.locked(connection, job_id, expected=None))

    def delete_job(self, job_id: str) -> None:
        """Delete a job, if it exists, with everything that belongs to it.

        If another job refers to a secret of this job, the secret stays without an owner.
        """
        with self._database.write() as connection:
            secrets.clear_owner(connection, job_id, states=jobs.all_jobs(connection))
            jobs.remove(connection, job_id)

    def events(self, job_id: str, *, newest: int = 1000) -> tuple[Event, ...]:
        """Return the newest events of a job in order, oldest first."""
        with self._database.read() as connection:
            return jobs.newest_events(connection, job_id, newest=newest)

    def truncate_events(self, job_id: str, *, keep: int) -> None:
        """Delete all but the newest events of a job; its state stays."""
        with self._database.write() as connection:
            state = jobs.locked(connection, job_id, expected=None)
            jobs.truncate(connection, state, keep=keep)

    def ledger(self, job_id: str, *, newest: int = 100) -> tuple[LedgerEntry, ...]:
        """Return the newest entries in order of appearance, oldest first."""
        with self._database.read() as connection:
            return ledger.newest_entries(connection, job_id, newest=newest)

    def ledger_counts(
        self, job_id: str, *, kind: CommitKind | None = None
    ) -> dict[Outcome, int]:
        """Count attempts and commits by outcome: all of them, or those of one kind."""
        with self._database.read() as connection:
            return ledger.counts(connection, job_id, kind=kind)

    def ledger_days(self, job_id: str) -> tuple[LedgerDay, ...]:
        """Return the totals of older attempts by day, kind and outcome."""
        with self._database.read() as connection:
            return ledger.days(connection, job_id)

    def files_of(self, job_id: str) -> JobFiles:
        """Return the file index of a job."""
        return JobFiles(self._database, job_id)

    def acquire_lease(
        self,
        job_id: str,
        *,
        node_id: str,
        duration: timedelta,
        expected: Generation,
        generation: Generation,
    ) -> JobState:
        """Lease a job to a node under a new generation; the desired state must be RUN."""
        with self._database.write() as connection:
            now = self._database.now()
            state = jobs.locked(connection, job_id, expected=expected)
            desired = state.desired.state
            if desired is not DesiredState.RUN:
                raise LeaseLostError(
                    f'job "{state.name}" must not run: its desired state is {desired.value}'
                )
            of_job = _leases.c.job_id == job_id
            held = connection.execute(select(_leases).where(of_job)).one_or_none()
            if held is not None and held.node_id != node_id and held.expires_at > now:
                until = held.expires_at.isoformat()
                raise LeaseHeldError(
                    f'job "{state.name}" is leased by node "{held.node_id}"',
                    detail=f"The lease expires at {until} unless the node renews it.",
                )
            connection.execute(delete(_leases).where(of_job))
            lease = {"job_id": job_id, "node_id": node_id, "expires_at": now + duration}
            connection.execute(insert(_leases), lease)
            raised = GenerationRaised(generation=generation, cause="lease")
            state = jobs.append(connection, state, (raised,), at=now)
            if state.generation != generation:
                raise InvariantError(
                    f'job "{state.name}" must be leased under a generation above '
                    f"{expected.number}, not {generation.number}"
                )
            return state

    def renew_leases(self, node_id: str, duration: timedelta) -> frozenset[str]:
        """Extend the live leases of a node; return the ids of the jobs that it still holds."""
        with self._database.write() as connection:
            now = self._database.now()
            live = {"node": node_id, "now": now}
            extend = update(_leases).where(*_LIVE_OF_NODE).values(expires_at=now + duration)
            connection.execute(extend, live)
            held = select(_leases.c.job_id).where(*_LIVE_OF_NODE)
            return frozenset(connection.scalars(held, live))

    def release_lease(self, job_id: str, node_id: str) -> None:
        """Delete the lease of a node; the lease of another node stays."""
        own = (_leases.c.job_id == job_id, _leases.c.node_id == node_id)
        with self._database.write() as connection:
            connection.execute(delete(_leases).where(*own))

    def leases(self) -> dict[str, Lease]:
        """Return the lease of every job that has one, by job id."""
        with self._database.read() as connection:
            now = self._database.now()
            return {
                row.job_id: Lease(
                    node_id=row.node_id, expires_at=row.expires_at, live=row.expires_at > now
                )
                for row in connection.execute(select(_leases))
            }

    def delete_leases_of_other_nodes(self, node_id: str) -> None:
        """Delete the leases of all other nodes; the other nodes must have ended."""
        with self._database.write() as connection:
            connection.execute(delete(_leases).where(_leases.c.node_id != node_id))

    def create_table(self, record: TableRecord) -> None:
        """Register a table; raise UserError if the name exists."""
        with self._database.write() as connection:
            _register(connection, record)

    def table(self, name: str) -> TableRecord | None:
        """Return the table with this name."""
        with self._database.read() as connection:
            found = connection.execute(select(_tables).where(_tables.c.name == name))
            row = found.mappings().one_or_none()
            return None if row is None else TableRecord(**row)

    def tables(self) -> tuple[TableRecord, ...]:
        """Return all tables by name."""
        with self._database.read() as connection:
            found = connection.execute(select(_tables).order_by(_tables.c.name))
            return tuple(TableRecord(**row) for row in found.mappings())

    def set_watermark(self, name: str, column: str | None, delay_ms: int) -> None:
        """Store the event time of a table; raise UserError if the table does not exist.

        ``column`` is None for a table without a watermark.
        """
        change = update(_tables).where(_tables.c.name == name)
        values = {"watermark_column": column, "watermark_delay_ms": delay_ms}
        with self._database.write() as connection:
            if not connection.execute(change.values(values)).rowcount:
                raise UserError(
                    f'table "{name}" does not exist',
                    code=Code.META_NOT_FOUND_ERR,
                    hint="List the tables with SHOW TABLES.",
                )

    def delete_table(self, name: str) -> None:
        """Delete the record of a table, if it exists; raise UserError if a job loads it."""
        loaded_by = relations.jobs
        named = _tables.c.name == name
        with self._database.write() as connection:
            table_id = connection.scalar(select(_tables.c.id).where(named).with_for_update())
            users = select(loaded_by.c.name).where(loaded_by.c.table_id == table_id)
            names = connection.scalars(users.order_by(loaded_by.c.name)).all()
            if names:
                quoted = ", ".join(f'"{job}"' for job in names)
                several = len(names) > 1
                raise UserError(
                    f'table "{name}" is loaded by the job{"s" if several else ""} {quoted}',
                    code=Code.STATE_ERR,
                    hint=f"Drop or stop {'these jobs' if several else 'this job'} first.",
                )
            connection.execute(delete(_tables).where(named))

    def create_secret(self, secret: SealedSecret) -> None:
        """Store a secret; raise UserError if the name exists."""
        with self._database.write() as connection:
            secrets.create(connection, secret, at=self._database.now())

    def change_secret(self, name: str, value_by_key: Mapping[str, str], *, key_id: str) -> None:
        """Add or replace values of a secret; one encryption key must encrypt all values."""
        with self._database.write() as connection:
            now = self._database.now()
            secrets.change(connection, name, value_by_key, key_id=key_id, at=now)

    def secret(self, name: str) -> SecretRecord | None:
        """Return the secret with this name."""
        with self._database.read() as connection:
            return secrets.by_name(connection, name)

    def secrets(self) -> tuple[SecretRecord, ...]:
        """Return all secrets by name."""
        with self._database.read() as connection:
            return secrets.all_secrets(connection)

    def delete_secret(self, name: str) -> tuple[JobState, ...]:
        """Delete a secret, if it exists, unless jobs use it; return the jobs that use it."""
        with self._database.write() as connection:
            users = secrets.users(name, jobs.all_jobs(connection))
            if not users:
                secrets.remove(connection, name)
            return users

    def set_status(self, job_id: str, newest: Status | None) -> None:
        """Store the status that a running job reports."""
        with self._database.write() as connection:
            status.put(connection, job_id, text="" if newest is None else to_text(newest))

    def add_requests(self, job_id: str, requests: int) -> None:
        """Count requests that a job has sent to its source."""
        with self._database.write() as connection:
            status.add_requests(connection, job_id, requests, at=self._database.now())

    def set_memory(self, job_id: str, text: str, *, expected: Generation) -> None:
        """Store the state of a job's source, unless the job has another owner."""
        with suppress(LeaseLostError), self._database.write() as connection:
            jobs.locked(connection, job_id, expected=expected)
            status.put(connection, job_id, memory=text)

    def report(self, job_id: str) -> JobReport:
        """Return the latest report of a job."""
        with self._database.read() as connection:
            found = status.report_by_job(connection, now=self._database.now(), job_id=job_id)
        return found.get(job_id, JobReport())

    def reports(self) -> dict[str, JobReport]:
        """Return the latest reports by job id, without jobs that never reported."""
        with self._database.read() as connection:
            return status.report_by_job(connection, now=self._database.now())


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Stored state of one job's source, written by one owner."""

    catalog: Catalog
    job_id: str
    generation: Generation

    def load(self) -> str:
        return self.catalog.report(self.job_id).memory

    def store(self, text: str) -> None:
        self.catalog.set_memory(self.job_id, text, expected=self.generation)


def _register(connection: Connection, record: TableRecord) -> None:
    try:
        connection.execute(insert(_tables), asdict(record))
    except IntegrityError as error:
        raise UserError(
            f'table "{record.name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Choose another name, or drop the existing table first.",
        ) from error
