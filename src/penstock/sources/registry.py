"""The source kinds by name; a kind is imported on first use.

A new kind needs a package beside this module and one line here.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.errors import InvariantError
from penstock.model.epoch import Generation
from penstock.model.job import JobDefinition, JobState, SourceRef, StatusCode
from penstock.model.options import parse_options, print_options
from penstock.sources.source import Source, SourceKind, SourceServices, TableOpener

if TYPE_CHECKING:
    from penstock.catalog.catalog import Catalog
    from penstock.secrets.vault import Vault

# The module of each kind; the module has an attribute with the kind's name.
_MODULES = {
    "FILES": "penstock.sources.files.kind",
    "KINESIS": "penstock.sources.kinesis.kind",
    "DATAGEN": "penstock.sources.datagen.kind",
    "TABLE_LOG": "penstock.sources.table_log.kind",
}


@cache
def source_kind(name: str) -> SourceKind:
    """Return a kind by its name."""
    if name not in _MODULES:
        raise InvariantError(f'source kind "{name}" is unknown to this version')
    kind: SourceKind = getattr(import_module(_MODULES[name]), name)
    return kind


def source_kinds() -> Iterator[SourceKind]:
    """Yield all kinds."""
    return map(source_kind, _MODULES)


def kinds_of(job_kind: str) -> tuple[SourceKind, ...]:
    """Return the source kinds that a job kind can read."""
    return tuple(kind for kind in source_kinds() if job_kind in kind.job_kinds)


@lru_cache(maxsize=256)
def source_options(source: SourceRef) -> Any:  # noqa: ANN401 - Each kind has its own class.
    """Return the typed options of a source; values may be references to secrets."""
    kind = source_kind(source.kind)
    return parse_options(kind.options, source.options, what=kind.functions[0])


def source_ref(kind: SourceKind, options: object) -> SourceRef:
    """Return the stored form of typed options."""
    return SourceRef(kind=kind.name, options=print_options(options))


class Sources:
    """Opens the sources of all jobs of one node.

    All sources of a kind share the value of ``SourceKind.shared``.
    """

    def __init__(
        self,
        *,
        catalog: "Catalog",
        vault: "Vault",
        clock: Clock,
        shared: Mapping[str, object] | None = None,
        open_tables: Callable[[], TableOpener] | None = None,
    ) -> None:
        self._catalog = catalog
        self._vault = vault
        self._clock = clock
        self._shared = dict(shared or {})
        self._open_tables = open_tables

    def open(self, state: JobState, stop: threading.Event) -> Source:
        """Open the source of a job for its owner; setting ``stop`` ends every wait."""
        from penstock.catalog.catalog import JobMemory

        kind = source_kind(state.definition.source.kind)
        if kind.name not in self._shared:
            # Another thread may have stored the value in the meantime.
            self._shared.setdefault(kind.name, kind.shared(self._clock))
        services = SourceServices(
            state=state,
            clock=self._clock,
            stop=stop,
            reveal=self._reveal,
            seal=self._vault.sealed_for_tasks,
            items=self._catalog.files_of(state.id),
            memory=JobMemory(self._catalog, state.id, state.generation),
            shared=self._shared[kind.name],
            tables=None if self._open_tables is None else self._open_tables(),
        )
        return kind.open(services)

    def is_caught_up(self, state: JobState) -> bool:
        """Return whether a job that another node runs has loaded everything; polls once."""
        # No owner has this generation, so the source cannot store its memory.
        observer = Generation(number=state.generation.number + 1, id="observer")
        source = self.open(replace(state, generation=observer), threading.Event())
        try:
            source.poll(state.progress, report=lambda _: None)
            return all(source.passed(split, head) for split, head in source.heads().items())
        finally:
            source.close()

    def is_query_caught_up(self, state: JobState) -> bool:
        """Return whether a query that another node runs has read everything and is idle.

        A query becomes idle only after its last watermark was applied.
        """
        at_head = self.is_caught_up(state)
        status = self._catalog.report(state.id).status
        return at_head and status is not None and status.code is StatusCode.IDLE

    def values(self, definition: JobDefinition) -> Any:  # noqa: ANN401 - One class per kind.
        """Return the values of a source's options; raise UserError for a broken reference."""
        kind = source_kind(definition.source.kind)
        return kind.reveal(source_options(definition.source), self._reveal)

    def probe(self, definition: JobDefinition, values: Any) -> None:  # noqa: ANN401
        """Send one cheap request that the credentials must allow."""
        kind = source_kind(definition.source.kind)
        kind.probe(source_options(definition.source), values)

    def _reveal(self, key: str, text: str) -> str:
        return self._vault.reveal(text, option=key)
