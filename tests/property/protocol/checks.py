"""What must be true of the table, the catalog and what statements promised, at every step."""

from penstock.model.epoch import Attachment, CommitKind, Statistics
from penstock.model.events import Outcome
from penstock.model.job import DesiredState
from penstock.model.split import After, Horizon, Position, SplitProgress
from penstock.sources.files.kind import FILES, further, is_above
from penstock.tables.rejects import reject_columns
from tests.property.protocol.world import URI, World


class Replay:
    """What one job's chain says was loaded, read commit by commit."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.rows: list[str] = []
        self.floor: Position = Horizon()
        self.position: Position = Horizon()
        # The last commit that set the position.
        self.placed = 0
        self.cumulative = Statistics()
        self.number = 0
        self.closed = False

    def take(self, attachment: Attachment, *, keys: list[str]) -> None:
        """Check the next commit against everything before it."""
        self.number += 1
        assert attachment.number == self.number, "numbers are not contiguous"
        assert not self.closed, "a commit follows the closing one"
        match attachment.kind:
            case CommitKind.EPOCH:
                self._take_epoch(attachment, keys)
            case CommitKind.MOVE | CommitKind.OPENING:
                self._place(attachment)
                self.loaded = {k for k in self.loaded if not is_above(k, self.floor)}
            case CommitKind.CLOSING:
                self.closed = True
            case CommitKind.FENCE:
                pass
        (split,) = attachment.progress
        assert (split.floor, split.position) == (self.floor, self.position), "position is off"
        assert split.placed == self.placed, "the mark of the last placement is off"
        assert attachment.cumulative == self.cumulative, "cumulative statistics are off"

    def _place(self, attachment: Attachment) -> None:
        (split,) = attachment.progress
        if split.position != self.position or isinstance(split.position, Horizon):
            self.placed = attachment.number
        self.floor, self.position = split.floor, split.position

    def _take_epoch(self, attachment: Attachment, keys: list[str]) -> None:
        new = [file.key for file in attachment.items]
        assert not self.loaded & set(new), "rows doubled"
        assert all(is_above(key, self.floor) for key in new), "rows from below the floor"
        passed_over = {
            key
            for key in keys
            if key <= new[-1] and is_above(key, self.floor) and key not in self.loaded
        } - set(new)
        assert not passed_over, "rows lost"
        assert attachment.statistics.rows_loaded == len(new)
        self.loaded |= set(new)
        self.rows += new
        self.position = further(self.position, After(value=new[-1]))
        self.cumulative = self.cumulative + attachment.statistics


def check_table(world: World) -> dict[str, Replay]:
    """Check every chain, and that the table holds exactly the rows of its epochs."""
    replays = {}
    for job_id in world.job_ids:
        replay = Replay()
        for attachment in world.chain(job_id):
            replay.take(attachment, keys=world.files.keys)
        replays[job_id] = replay
    stored = sorted(str(row["key"]) for row in world.tables.rows(world.table.location))
    assert stored == sorted(key for replay in replays.values() for key in replay.rows)
    return replays


def check_catalog(world: World, replays: dict[str, Replay]) -> None:
    """Check that the catalog never runs ahead of the table."""
    state = world.state()
    if state is None or state.id not in replays or world.restored:
        return
    assert state.number <= replays[state.id].number, "the catalog is ahead of the table"


def check_at_rest(world: World) -> None:
    """Check that nothing is missing once everybody has done what they can."""
    replays = check_table(world)
    state = world.state()
    if state is None:
        return
    replay = replays[state.id]
    wanted = [key for key in world.files.keys if is_above(key, replay.floor)]
    assert state.desired.state is DesiredState.RUN, f"still {state.desired}"
    assert sorted(k for k in replay.loaded if is_above(k, replay.floor)) == wanted, "rows lost"
    assert state.number == replay.number, "the catalog lags behind the table"
    assert state.progress == (
        SplitProgress(
            split=URI, floor=replay.floor, position=replay.position, placed=replay.placed
        ),
    )
    assert state.cumulative == replay.cumulative, "statistics are off"
    assert world.catalog.files_of(state.id).count() == len(replay.loaded), (
        "the file index is off"
    )
    ledger = world.catalog.ledger(state.id, newest=10_000)
    committed = [e.number for e in ledger if e.outcome is Outcome.COMMITTED]
    assert sorted(n for n in committed if n) == list(range(1, replay.number + 1))
    assert all(e.outcome is not Outcome.STARTED for e in ledger), "an attempt never ended"
    rejects = world.tables.open_rejects(
        state.id, reject_columns(FILES.place_columns)
    ).files_by_number
    named = {a.number: a.reject_files for a in world.chain(state.id) if a.reject_files}
    assert rejects == named, "rejects lost or doubled"
    copies = world.tables.copies(world.table.location, state.id)
    assert [copies.get(a.number) for a in world.chain(state.id)] == world.chain(state.id)
