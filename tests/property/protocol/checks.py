"""Checks of the table and the catalog, after every step and at the end of a history."""

from penstock.model.epoch import Attachment, CommitKind, Statistics
from penstock.model.events import Outcome
from penstock.model.job import DesiredState
from penstock.model.split import After, Horizon, Position, SplitProgress
from penstock.sources.files.kind import FILES, is_above, later_position
from penstock.tables.rejects import reject_columns
from tests.property.protocol.world import URI, World


class Replay:
    """The expected state of a job, computed from its chain commit by commit."""

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

    def add(self, attachment: Attachment, *, keys: list[str]) -> None:
        """Check the next commit against all earlier commits."""
        self.number += 1
        assert attachment.number == self.number, "numbers are not contiguous"
        assert not self.closed, "a commit follows the closing commit"
        match attachment.kind:
            case CommitKind.EPOCH:
                self._add_epoch(attachment, keys)
            case CommitKind.MOVE | CommitKind.OPENING:
                self._place(attachment)
                self.loaded = {k for k in self.loaded if not is_above(k, self.floor)}
            case CommitKind.CLOSING:
                self.closed = True
            case CommitKind.FENCE:
                pass
        (split,) = attachment.progress
        assert (split.floor, split.position) == (self.floor, self.position), "position is wrong"
        assert split.placed == self.placed, "number of the last change of position is wrong"
        assert attachment.cumulative == self.cumulative, "cumulative statistics are wrong"

    def _place(self, attachment: Attachment) -> None:
        (split,) = attachment.progress
        if split.position != self.position or isinstance(split.position, Horizon):
            self.placed = attachment.number
        self.floor, self.position = split.floor, split.position

    def _add_epoch(self, attachment: Attachment, keys: list[str]) -> None:
        new = [file.key for file in attachment.items]
        assert not self.loaded & set(new), "rows were loaded twice"
        assert all(is_above(key, self.floor) for key in new), "rows below the floor were loaded"
        skipped = {
            key
            for key in keys
            if key <= new[-1] and is_above(key, self.floor) and key not in self.loaded
        } - set(new)
        assert not skipped, "rows were lost"
        assert attachment.statistics.rows_loaded == len(new)
        self.loaded |= set(new)
        self.rows += new
        self.position = later_position(self.position, After(value=new[-1]))
        self.cumulative = self.cumulative + attachment.statistics


def check_table(world: World) -> dict[str, Replay]:
    """Check every chain, and that the table has exactly the rows of its epochs."""
    replays = {}
    for job_id in world.job_ids:
        replay = Replay()
        for attachment in world.chain(job_id):
            replay.add(attachment, keys=world.files.keys)
        replays[job_id] = replay
    stored = sorted(str(row["key"]) for row in world.tables.rows(world.table.location))
    assert stored == sorted(key for replay in replays.values() for key in replay.rows)
    return replays


def check_catalog(world: World, replays: dict[str, Replay]) -> None:
    """Check that the catalog has no commit that the table lacks."""
    state = world.state()
    if state is None or state.id not in replays or world.restored:
        return
    assert state.number <= replays[state.id].number, "the catalog is ahead of the table"


def check_final_state(world: World) -> None:
    """Check that everything was loaded and applied at the end of a history."""
    replays = check_table(world)
    state = world.state()
    if state is None:
        return
    replay = replays[state.id]
    wanted = [key for key in world.files.keys if is_above(key, replay.floor)]
    assert state.desired.state is DesiredState.RUN, f"still {state.desired}"
    assert sorted(k for k in replay.loaded if is_above(k, replay.floor)) == wanted, (
        "rows were lost"
    )
    assert state.number == replay.number, "the catalog lacks commits of the table"
    assert state.progress == (
        SplitProgress(
            split=URI, floor=replay.floor, position=replay.position, placed=replay.placed
        ),
    )
    assert state.cumulative == replay.cumulative, "statistics are wrong"
    assert world.catalog.files_of(state.id).count() == len(replay.loaded), (
        "the file index is wrong"
    )
    ledger = world.catalog.ledger(state.id, newest=10_000)
    committed = [e.number for e in ledger if e.outcome is Outcome.COMMITTED]
    assert sorted(n for n in committed if n) == list(range(1, replay.number + 1))
    assert all(e.outcome is not Outcome.STARTED for e in ledger), "an attempt never ended"
    rejects = world.tables.open_rejects(
        state.id, reject_columns(FILES.place_columns)
    ).files_by_number
    named = {a.number: a.reject_files for a in world.chain(state.id) if a.reject_files}
    assert rejects == named, "rejects were lost or committed twice"
    copies = world.tables.copies(world.table.location, state.id)
    assert [copies.get(a.number) for a in world.chain(state.id)] == world.chain(state.id)
