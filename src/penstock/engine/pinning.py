"""Which version of the tables that a SELECT joins with an epoch sees."""

from penstock.model.job import JobDefinition
from penstock.model.query import Lookup
from penstock.tables.lookups import pin
from penstock.tables.table import Tables


class PinnedLookups:
    """The tables of one job, pinned anew for every epoch; all attempts see the same."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pinned: tuple[int, tuple[Lookup, ...]] | None = None

    def of(self, definition: JobDefinition, *, epoch: int) -> tuple[Lookup, ...]:
        """Answer the tables that the SELECT of a job joins with, as this epoch sees them."""
        query = definition.query
        if query is None or not query.lookups:
            return ()
        if self._pinned is None or self._pinned[0] != epoch:
            limit = definition.properties.lookup_bytes_max
            found = (pin(t, tables=self._tables, bytes_max=limit) for t in query.lookups)
            self._pinned = (epoch, tuple(found))
        return self._pinned[1]
