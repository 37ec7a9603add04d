"""Open the source of a job: its options, the file index, and the keys that it needs."""

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.model.job import JobState
from penstock.sources.files.files import FilesSource, SourceParts
from penstock.vault import Vault


def open_job_source(
    state: JobState, *, catalog: Catalog, vault: Vault, clock: Clock
) -> FilesSource:
    """Open the source of a job; the file index decides what is new."""
    parts = SourceParts(
        index=catalog.files_of(state.id),
        clock=clock,
        reveal=lambda key, text: vault.reveal(text, option=key),
        seal=vault.sealed_for_tasks,
    )
    return FilesSource(state.definition.source, parts=parts)
