"""The catalog: what is remembered of jobs, tables and secrets; one transaction per change.

The catalog follows the tables: progress is what the newest attachment says, and an attachment
that is found in a table is applied whoever holds the job. Everything else is a compare-and-set
on the job's generation. All methods may be called from any thread.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from penstock.catalog import items as file_index
from penstock.catalog import jobs, leases, ledger, secrets, tables
from penstock.catalog import status as statuses
from penstock.catalog.database import CommitGapError, Database
from penstock.catalog.items import JobFiles
from penstock.catalog.leases import Lease
from penstock.catalog.ledger import LedgerDay
from penstock.catalog.tables import TableRecord
from penstock.catalog.upgrade import upgrade
from penstock.clock import Clock
from penstock.errors import InvariantError, LeaseLostError
from penstock.model.epoch import Attachment, CommitKind, Generation
from penstock.model.events import (
    Committed,
    EpochEnded,
    Event,
    EventBody,
    GenerationRaised,
    JobCreated,
    Outcome,
)
from penstock.model.job import JobState
from penstock.model.ledger import LedgerEntry
from penstock.model.secrets import SealedSecret, SecretRecord
from penstock.model.status import Status

LOCK_WAIT = timedelta(seconds=15)


def open_catalog(url: str, *, clock: Clock, lock_wait: timedelta = LOCK_WAIT) -> "Catalog":
    """Open the catalog at ``sqlite:///path``, or a new one in memory at ``sqlite://``."""
    database = Database(url, clock=clock, lock_wait=lock_wait)
    upgrade(database)
    return Catalog(database)


class Catalog:
    """What is remembered; every change is stored when its method returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close the database; nothing is lost without it."""
        self._database.close()

    def create_job(
        self, job_id: str, body: JobCreated, *, secrets_owned: Sequence[SealedSecret] = ()
    ) -> JobState:
        """Store a new job, and its own secrets.

        A taken name is refused, and so is a table or a secret that is gone.
        """
        with self._database.write() as connection:
            now = self._database.now()
            state = jobs.create(connection, job_id, body, at=now)
            for secret in secrets_owned:
                secrets.create(connection, secret, at=now)
            secrets.require_known(connection, state.definition)
            return state

    def job(self, name: str) -> JobState | None:
        """Answer the job with this name."""
        with self._database.read() as connection:
            return jobs.by_name(connection, name)

    def job_by_id(self, job_id: str) -> JobState | None:
        """Answer the job with this id."""
        with self._database.read() as connection:
            return jobs.by_id(connection, job_id)

    def jobs(self) -> tuple[JobState, ...]:
        """Answer all jobs by name."""
        with self._database.read() as connection:
            return jobs.all_jobs(connection)

    def append(
        self,
        job_id: str,
        body: EventBody,
        *,
        expected: Generation | None,
        secrets_owned: Sequence[SealedSecret] = (),
    ) -> JobState:
        """Store one event, and the job's own secrets, if the generation is the expected one."""
        return self.append_all(job_id, (body,), expected=expected, secrets_owned=secrets_owned)

    def append_all(
        self,
        job_id: str,
        bodies: Sequence[EventBody],
        *,
        expected: Generation | None,
        secrets_owned: Sequence[SealedSecret] = (),
    ) -> JobState:
        """Store events together if the job's generation is the expected one.

        A definition that refers to a secret which is gone is refused, and of the job's own
        secrets only what its definition refers to stays.
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
        """Follow the next commit of the job's chain; one that is known changes nothing."""
        with self._database.write() as connection:
            state = jobs.locked(connection, job_id, expected=None)
            if attachment.number <= state.number:
                return state
            if attachment.number > state.number + 1:
                raise CommitGapError(
                    f'job "{state.name}" is at commit {state.number} and cannot follow '
                    f"commit {attachment.number} before those between"
                )
            file_index.follow(connection, job_id, attachment)
            body = Committed(
                attachment=attachment,
                table_version=table_version,
                commit_seconds=commit_seconds,
            )
            return jobs.append(connection, state, (body,), at=self._database.now())

    def cancel_open_attempts(self, job_id: str) -> int:
        """Mark attempts that never ended as cancelled; answer how many there were."""
        with self._database.write() as connection:
            attempts = ledger.open_entries(connection, job_id)
            if attempts:
                state = jobs.locked(connection, job_id, expected=None)
                ends = [_cancelled(attempt) for attempt in attempts]
                jobs.append(connection, state, ends, at=self._database.now())
            return len(attempts)

    def retire_job(self, job_id: str) -> None:
        """Give back the name of a job that has ended, which is kept to be looked at."""
        with self._database.write() as connection:
            jobs.retire(connection, jobs.locked(connection, job_id, expected=None))

    def delete_job(self, job_id: str) -> None:
        """Forget a job with everything that belongs to it; gone already is fine.

        A secret of its own that other jobs refer to stays, and belongs to none.
        """
        with self._database.write() as connection:
            secrets.give_away(connection, job_id, states=jobs.all_jobs(connection))
            jobs.remove(connection, job_id)

    def events(self, job_id: str, *, newest: int = 1000) -> tuple[Event, ...]:
        """Answer the newest events of a job, the oldest of them first."""
        with self._database.read() as connection:
            return jobs.newest_events(connection, job_id, newest=newest)

    def truncate_events(self, job_id: str, *, keep: int) -> None:
        """Cut a job's journal down to its newest events; its state stays as it is."""
        with self._database.write() as connection:
            state = jobs.locked(connection, job_id, expected=None)
            jobs.truncate(connection, state, keep=keep)

    def ledger(self, job_id: str, *, newest: int = 100) -> tuple[LedgerEntry, ...]:
        """Answer the entries that appeared last, the oldest of them first."""
        with self._database.read() as connection:
            return ledger.newest_entries(connection, job_id, newest=newest)

    def ledger_counts(
        self, job_id: str, *, kind: CommitKind | None = None
    ) -> dict[Outcome, int]:
        """Count all attempts and commits by outcome, or those of one kind."""
        with self._database.read() as connection:
            return ledger.counts(connection, job_id, kind=kind)

    def ledger_days(self, job_id: str) -> tuple[LedgerDay, ...]:
        """Answer older attempts, added up by day, kind and outcome."""
        with self._database.read() as connection:
            return ledger.days(connection, job_id)

    def files_of(self, job_id: str) -> JobFiles:
        """Answer the file index of a job."""
        return JobFiles(self._database, job_id)

    def take_lease(
        self,
        job_id: str,
        *,
        node_id: str,
        duration: timedelta,
        expected: Generation,
        generation: Generation,
    ) -> JobState:
        """Give a job that should run to a node, under a new generation."""
        with self._database.write() as connection:
            now = self._database.now()
            state = jobs.locked(connection, job_id, expected=expected)
            leases.take(connection, state, node_id=node_id, now=now, expires_at=now + duration)
            raised = GenerationRaised(generation=generation, cause="lease")
            state = jobs.append(connection, state, (raised,), at=now)
            if state.generation != generation:
                raise InvariantError(
                    f'job "{state.name}" must be leased under a generation above '
                    f"{expected.number}, not {generation.number}"
                )
            return state

    def renew_leases(self, node_id: str, duration: timedelta) -> frozenset[str]:
        """Prolong the live leases of a node; answer the ids of the jobs it still holds."""
        with self._database.write() as connection:
            now = self._database.now()
            return leases.renew(connection, node_id, now=now, expires_at=now + duration)

    def release_lease(self, job_id: str, node_id: str) -> None:
        """Give a lease back; one that is lost already is fine."""
        with self._database.write() as connection:
            leases.release(connection, job_id, node_id)

    def leases(self) -> dict[str, Lease]:
        """Answer the lease of every job that has one, by job id."""
        with self._database.read() as connection:
            return leases.all_leases(connection, now=self._database.now())

    def free_leases_of_others(self, node_id: str) -> None:
        """End the leases of all other nodes; only for whoever knows that they have ended."""
        with self._database.write() as connection:
            leases.free_of_others(connection, node_id)

    def create_table(self, record: TableRecord) -> None:
        """Register a table; refuse a name that is taken."""
        with self._database.write() as connection:
            tables.create(connection, record)

    def table(self, name: str) -> TableRecord | None:
        """Answer the table with this name."""
        with self._database.read() as connection:
            return tables.by_name(connection, name)

    def tables(self) -> tuple[TableRecord, ...]:
        """Answer all tables by name."""
        with self._database.read() as connection:
            return tables.all_tables(connection)

    def delete_table(self, name: str) -> None:
        """Forget a table, unless a job loads it; gone already is fine."""
        with self._database.write() as connection:
            tables.remove(connection, name)

    def create_secret(self, secret: SealedSecret) -> None:
        """Store a secret; refuse a name that is taken."""
        with self._database.write() as connection:
            secrets.create(connection, secret, at=self._database.now())

    def change_secret(self, name: str, value_by_key: Mapping[str, str], *, key_id: str) -> None:
        """Add or replace sealed values of a secret; the others must have the same key."""
        with self._database.write() as connection:
            now = self._database.now()
            secrets.change(connection, name, value_by_key, key_id=key_id, at=now)

    def secret(self, name: str) -> SecretRecord | None:
        """Answer the secret with this name."""
        with self._database.read() as connection:
            return secrets.by_name(connection, name)

    def secrets(self) -> tuple[SecretRecord, ...]:
        """Answer all secrets by name."""
        with self._database.read() as connection:
            return secrets.all_secrets(connection)

    def delete_secret(self, name: str) -> tuple[JobState, ...]:
        """Forget a secret, unless jobs use it: then answer these; gone already is fine."""
        with self._database.write() as connection:
            users = secrets.users(name, jobs.all_jobs(connection))
            if not users:
                secrets.remove(connection, name)
            return users

    def set_status(self, job_id: str, status: Status | None) -> None:
        """Store what a running job reports of itself."""
        with self._database.write() as connection:
            statuses.put(connection, job_id, status)

    def add_requests(self, job_id: str, requests: int) -> None:
        """Count requests that a job has sent to its source."""
        with self._database.write() as connection:
            at = self._database.now()
            statuses.add_requests(connection, job_id, requests, at=at)

    def requests_in_hour(self) -> dict[str, int]:
        """Answer how many requests jobs have sent in the last hour, by job id."""
        with self._database.read() as connection:
            return statuses.requests_by_job(connection, now=self._database.now())

    def set_memory(self, job_id: str, text: str, *, expected: Generation) -> None:
        """Store what a job's source remembers, unless the job has another owner."""
        with suppress(LeaseLostError), self._database.write() as connection:
            jobs.locked(connection, job_id, expected=expected)
            statuses.put_memory(connection, job_id, text)

    def memory(self, job_id: str) -> str:
        """Return what a job's source remembers; empty if nothing."""
        return self.memories().get(job_id, "")

    def memories(self) -> dict[str, str]:
        """Return what the sources of all jobs remember, by job id."""
        with self._database.read() as connection:
            return statuses.memory_by_job(connection)

    def status(self, job_id: str) -> Status | None:
        """Return the newest status of a job."""
        return self.statuses().get(job_id)

    def statuses(self) -> dict[str, Status]:
        """Return the newest status of all jobs that have one, by job id."""
        with self._database.read() as connection:
            return statuses.status_by_job(connection)


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What the source of one job remembers, written by one owner."""

    catalog: Catalog
    job_id: str
    generation: Generation

    def load(self) -> str:
        """Return the newest text."""
        return self.catalog.memory(self.job_id)

    def store(self, text: str) -> None:
        """Replace the text, unless the job has another owner."""
        self.catalog.set_memory(self.job_id, text, expected=self.generation)


def _cancelled(attempt: LedgerEntry) -> EpochEnded:
    return EpochEnded(
        attempt_id=attempt.attempt_id,
        epoch=attempt.epoch,
        attempt=attempt.attempt,
        outcome=Outcome.CANCELLED,
        reason=None,
    )
