"""Plan and run the epochs of load jobs on an executor."""

from dataclasses import dataclass

from penstock.engine.run import EpochTables, Executor, RunParts, Work, run_epoch
from penstock.epochs.ack import check_cover
from penstock.epochs.loop import EpochLoop
from penstock.epochs.progress import ProgressReporter, Step
from penstock.epochs.runner import LoopParts, Owned
from penstock.model.epoch import Ack, Attachment, EpochPlan
from penstock.model.job import JobDefinition
from penstock.model.query import Lookup
from penstock.model.split import SplitRead
from penstock.tables.scan import pin
from penstock.tables.table import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParts:
    """The dependencies of every load."""

    loop: LoopParts
    executor: Executor
    work: Work


def open_load_loop(job_id: str, *, parts: LoadParts, reporter: ProgressReporter) -> EpochLoop:
    """Return the loop of a load job."""
    runner = LoadRunner(job_id, parts=parts, reporter=reporter)
    return EpochLoop(job_id, parts=parts.loop, runner=runner, reporter=reporter)


class PinnedLookups:
    """The tables that a job joins, pinned to one version for all attempts of an epoch."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pinned: tuple[int, tuple[Lookup, ...]] | None = None

    def of(self, definition: JobDefinition, *, epoch: int) -> tuple[Lookup, ...]:
        """Return the tables that the job's SELECT joins, at the versions of this epoch."""
        query = definition.query
        if query is None or not query.lookups:
            return ()
        if self._pinned is None or self._pinned[0] != epoch:
            limit = definition.properties.lookup_bytes_max
            found = (pin(t, tables=self._tables, bytes_max=limit) for t in query.lookups)
            self._pinned = (epoch, tuple(found))
        return self._pinned[1]


class LoadRunner:
    """Runs every epoch as one Spark job; implements ``EpochRunner``."""

    def __init__(self, job_id: str, *, parts: LoadParts, reporter: ProgressReporter) -> None:
        self._job_id = job_id
        self._parts = parts
        self._reporter = reporter
        self._lookups = PinnedLookups(parts.loop.tables)

    def open(self, owned: Owned) -> None:
        """Do nothing: every attempt is a Spark job of its own."""

    def pending(self, owned: Owned) -> bool:  # noqa: ARG002 - Part of the contract.
        """Return False: without unread records, no epoch is due."""
        return False

    def plan(self, owned: Owned) -> EpochPlan | None:
        """Return the next epoch of the source."""
        return owned.source.plan(owned.state.progress, limits=owned.limits)

    def run(self, plan: EpochPlan, draft: Attachment, *, owned: Owned) -> tuple[Ack, ...]:
        """Run one task for each share of the plan."""
        shares = self._share(plan, owned)
        definition, tables = owned.state.definition, self._parts.loop.tables
        epoch_tables = EpochTables(
            columns=owned.handle.columns(),
            partition_by=owned.handle.partition_columns(),
            rejects_root=tables.rejects_location(self._job_id),
            lookups=self._lookups.of(definition, epoch=draft.epoch),
            table_access=tables.task_access(definition.table.location),
            source_access=owned.source.task_access(),
        )
        parts = RunParts(
            executor=self._parts.executor,
            work=self._parts.work,
            count_requests=owned.source.count_requests,
        )
        acks = run_epoch(
            shares, state=owned.state, draft=draft, tables=epoch_tables, parts=parts
        )
        check_cover(shares, acks)
        return acks

    def _share(self, plan: EpochPlan, owned: Owned) -> list[tuple[SplitRead, ...]]:
        """Divide the plan into one share per parallel task; start Spark if necessary."""
        executor, definition = self._parts.executor, owned.state.definition
        if not executor.ready:
            self._reporter.report_spark_start()
        tasks = min(executor.parallelism, definition.properties.tasks_max or 10**9)
        self._reporter.report(step=Step.LOADING)
        return owned.source.distribute(plan, tasks=tasks, needed=definition.needed)

    def attach(self, attachment: Attachment) -> Attachment:
        """Return the attachment unchanged."""
        return attachment

    def committed(self, attachment: Attachment | None, *, owned: Owned) -> None:
        """Do nothing: the commit is complete."""

    def cancel(self) -> None:
        """Cancel the Spark jobs of the job."""
        self._parts.executor.cancel(self._job_id)

    def close(self) -> None:
        """Do nothing: nothing is held between epochs."""
