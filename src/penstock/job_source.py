"""Open the source of a job: its options, what is remembered of it, and the keys it needs."""

from collections.abc import Callable
from threading import Event
from typing import assert_never

from penstock.catalog.catalog import Catalog
from penstock.catalog.job_reports import JobReports
from penstock.clock import Clock
from penstock.model.files import FilesOptions
from penstock.model.job import JobState
from penstock.model.kinesis import KinesisOptions
from penstock.sources.files.files import FilesSource, SourceParts
from penstock.sources.kinesis.budgets import ReadBudgets
from penstock.sources.source import Source
from penstock.vault import Vault


def source_opener(
    *, catalog: Catalog, vault: Vault, clock: Clock, budgets: ReadBudgets | None = None
) -> Callable[[JobState, Event], Source]:
    """Answer what opens the sources of all jobs of a node, which share its budgets."""
    shared = budgets or ReadBudgets(clock)

    def open_source(state: JobState, stop: Event) -> Source:
        options = state.definition.source
        match options:
            case FilesOptions():
                return open_files(state, catalog=catalog, vault=vault, clock=clock)
            case KinesisOptions():
                from penstock.sources.kinesis.source import KinesisSource, StreamParts

                parts = StreamParts(
                    clock=clock,
                    stop=stop,
                    reports=JobReports(catalog, state.id),
                    budgets=shared,
                    reveal=lambda key, text: vault.reveal(text, option=key),
                    seal=vault.sealed_for_tasks,
                )
                return KinesisSource(options, parts=parts)
            case _:
                assert_never(options)

    return open_source


def open_files(state: JobState, *, catalog: Catalog, vault: Vault, clock: Clock) -> FilesSource:
    """Open the files of a streaming job; the file index decides what is new."""
    parts = SourceParts(
        index=catalog.files_of(state.id),
        clock=clock,
        reveal=lambda key, text: vault.reveal(text, option=key),
        seal=vault.sealed_for_tasks,
    )
    return FilesSource(state.definition.files, parts=parts)
