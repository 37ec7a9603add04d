"""Open the source of a job, or try it: its options, what is remembered, the keys it needs."""

from collections.abc import Callable
from threading import Event
from typing import assert_never

from penstock.catalog.catalog import Catalog
from penstock.catalog.job_reports import JobReports
from penstock.clock import Clock
from penstock.model.job import JobDefinition, JobState
from penstock.secrets.vault import Vault
from penstock.sources.files.globs import files_glob
from penstock.sources.files.options import FilesOptions
from penstock.sources.files.source import FilesSource, SourceParts
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.source import ReadBudgets
from penstock.sources.source import Source
from penstock.storage.options import StoreOptions, revealed
from penstock.storage.store import open_store
from penstock.storage.uris import parse_uri


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
                    job_id=state.id,
                    clock=clock,
                    stop=stop,
                    reports=JobReports(catalog, state.id, state.generation),
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


def source_values(definition: JobDefinition, *, vault: Vault) -> StoreOptions | KinesisOptions:
    """Answer where a source is and who asks it, with values in the place of references.

    UserError names the reference that leads nowhere; nothing is asked of the source.
    """
    source = definition.source
    if isinstance(source, FilesOptions):
        return revealed(source.store, lambda key, text: vault.reveal(text, option=key))
    from penstock.sources.kinesis.access import revealed_stream

    return revealed_stream(source, lambda key, text: vault.reveal(text, option=key))


def ask_source(definition: JobDefinition, values: StoreOptions | KinesisOptions) -> None:
    """Send a source the cheapest request that its credentials must allow, one and no more.

    Raises ExternalError with what it answered, if that is not what was asked for.
    """
    if isinstance(values, KinesisOptions):
        from penstock.sources.kinesis.access import stream_access
        from penstock.sources.kinesis.client import StreamClient

        access = stream_access(values)
        StreamClient(access).ask("describe_stream_summary", **access.naming)
        return
    place = parse_uri(definition.files.uri)
    store, _ = open_store(place, values)
    store.holds(files_glob(place).prefixes[0])
