"""The roll of a stream's shards: what listings, ends of shards and questions by name have told.

Invariant: what a listing lacks says nothing. A shard is gone when the stream, asked for it by
name, does not know it.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Event

from penstock.clock import Clock
from penstock.errors import Code, UserError
from penstock.model.split import ListedShard, position_text
from penstock.sources.kinesis.client import Patience, StreamClient
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.pages import knows_shard, list_shards
from penstock.sources.kinesis.shards import (
    Progress,
    childless,
    follow,
    forget,
    forgettable,
    named,
    readable,
    unknown_parents,
    unlisted,
    untold,
)
from penstock.sources.kinesis.watching import way_on

LISTING_INTERVAL = timedelta(seconds=60)
_LATE_LISTINGS_MAX = 5
_LISTING_PAUSE = timedelta(seconds=1)


class Roll:
    """Knows which shards a stream has, as far as it was told."""

    def __init__(
        self,
        options: KinesisOptions,
        *,
        client: Callable[[], StreamClient],
        patience: Patience,
        clock: Clock,
        stop: Event,
    ) -> None:
        self._options = options
        self._client = client
        self._patience = patience
        self._clock = clock
        self._stop = stop
        self.listed: tuple[ListedShard, ...] = ()
        self._listed_at: float | None = None
        # Children that the end of a parent has told of.
        self._children: dict[str, ListedShard] = {}
        # Shards that the stream knew, or not, when it was asked for them by name.
        self._known: set[str] = set()
        self._gone: set[str] = set()

    def look(self, progress: Progress) -> Progress:
        """Complete progress, by a new listing if it is time; one that is late is repeated.

        Without its parents nobody knows whose turn a shard is, without its range of keys which
        parts of an aggregate are foreign, and without its children what comes after its end.
        """
        if self._listing_due():
            self._list()
        progress = self.completed(progress)
        self._require_known(progress)
        for _ in range(_LATE_LISTINGS_MAX):
            if not self._is_late(progress):
                break
            self._clock.wait(self._stop, _LISTING_PAUSE)
            self._list()
            progress = self.completed(progress)
        return progress

    def completed(self, progress: Progress) -> Progress:
        """Add what the stream has told of shards that progress does not know yet."""
        if self._options.pinned:
            return follow(progress, [s for s in self.listed if s.id in self._options.pinned])
        found = self._with_parents(follow(progress, self.told_of().values()))
        missing = forgettable(found, self.listed)
        return forget(found, [name for name in missing if not self._is_known(name)])

    def told_of(self) -> Mapping[str, ListedShard]:
        """Answer what is told of each shard."""
        return {shard.id: shard for shard in (*self._children.values(), *self.listed)}

    def add(self, child: ListedShard) -> None:
        """Take a shard of which the end of its parent has told."""
        self._children[child.id] = child

    def awaits_child(self, progress: Progress) -> bool:
        """Tell whether shards must follow on finished ones that no listing has shown yet."""
        return not self._options.pinned and bool(childless(progress, self.listed))

    def is_closed(self, shard: str) -> bool:
        """Ask the stream whether a shard takes no new records any more."""
        self._list()
        return any(one.id == shard and one.closed for one in self.listed)

    def _listing_due(self) -> bool:
        if self._listed_at is None:
            return True
        passed = self._clock.monotonic() - self._listed_at
        return passed >= LISTING_INTERVAL.total_seconds()

    def _list(self) -> None:
        client = self._client()
        page = self._options.page_shards_max
        self.listed = list_shards(client, client.access, self._patience, page=page)
        self._listed_at = self._clock.monotonic()
        seen = {shard.id for shard in self.listed}
        self._children = {k: v for k, v in self._children.items() if k not in seen}
        self._known.clear()

    def _is_late(self, progress: Progress) -> bool:
        """Tell whether a listing lacks what it must show sooner or later."""
        awaited = (*readable(progress), *untold(progress))
        return bool(unlisted(awaited, self.told_of().values())) or self.awaits_child(progress)

    def _with_parents(self, progress: Progress) -> Progress:
        """Add parents that no listing has shown, unless the stream has forgotten them."""
        known = tuple(
            named(parent) for parent in unknown_parents(progress) if self._is_known(parent)
        )
        return (*progress, *known)

    def _is_known(self, shard: str) -> bool:
        """Ask the stream whether it knows a shard, once for every listing."""
        if shard not in self._known | self._gone:
            known = knows_shard(self._client(), shard, patience=self._patience)
            (self._known if known else self._gone).add(shard)
        return shard in self._known

    def _require_known(self, progress: Progress) -> None:
        """Refuse to go on where a shard that was not read to its end is gone."""
        for split in unlisted(progress, self.told_of().values()):
            if not self._is_known(split.split):
                stands_at = position_text(split.position)
                raise UserError(
                    f"shard {split.split} is gone, and was not read to its end",
                    code=Code.CANNOT_RESUME_ERR,
                    detail=f"The job stands at {stands_at}; the rest was trimmed.",
                    hint=way_on("the other shards", shard=split.split, position="END"),
                )
