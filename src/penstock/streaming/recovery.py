"""Decide how a streaming table starts, by comparing its checkpoint with its table.

The table's newest attachment names a checkpoint and a batch. The loop settles a batch before it
commits the next batch to the table. So after a crash or a power loss, the table is at most one
batch ahead of the checkpoint.

Invariant: a streaming table never starts from an empty state if its table has a committed
batch. The positions and the state therefore always belong together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import Code, UserError

# The number before batch 0, which is the first batch of a checkpoint.
NO_BATCH = -1
PUT_BACK_HINT = (
    "Put back the checkpoint folder that belongs to this version of the table, then resume. "
    "Or drop the streaming table and create it again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The files of a checkpoint, without the files that a power loss truncated."""

    exists: bool = False
    # None if the checkpoint has no readable metadata.
    checkpoint_id: str | None = None
    # The newest batch in commits and in offsets.
    committed: int = NO_BATCH
    opened: int = NO_BATCH
    # Whether the table must have a commit of the batch, for each batch with a readable plan.
    in_table: Mapping[int, bool] = field(default_factory=dict)
    # Files that the newest commit needs and that are missing or unreadable.
    missing: tuple[str, ...] = ()
    # Files of an unfinished batch that are unreadable or useless, and can be deleted.
    truncated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Create the checkpoint and start; first delete an incomplete checkpoint."""

    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Continue with a batch; reuse its plan if the plan is stored and its files exist."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Run a committed batch again without a commit, to rebuild its state; then continue."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Pause the streaming table with an error that is never resumed automatically."""

    code: Code
    reason: str
    detail: str = ""

    def error(self, folder: object) -> UserError:
        """Return the error that pauses the streaming table; it names the checkpoint folder."""
        hint = f"{PUT_BACK_HINT} The folder is {folder}."
        return UserError(self.reason, code=self.code, detail=self.detail, hint=hint)


Verdict = Start | Continue | Replay | Refuse


def decide(found: Found, *, checkpoint_id: str, batch: int) -> Verdict:
    """Decide how the streaming table starts; the first matching rule applies.

    The checkpoint id and the batch are those of the table's newest attachment. The batch is
    ``NO_BATCH`` if no batch was committed.
    """
    if found.checkpoint_id is None:
        if batch == NO_BATCH:
            return Start(delete=found.exists)
        what = "metadata of the checkpoint" if found.exists else "checkpoint folder"
        return _refuse(Code.CHECKPOINT_LOST_ERR, f"{what} does not exist", found, batch)
    if found.checkpoint_id != checkpoint_id:
        reason = f'checkpoint has the id "{found.checkpoint_id}", expected "{checkpoint_id}"'
        return _refuse(Code.CHECKPOINT_FOREIGN_ERR, reason, found, batch)
    damage = _damage(found, batch)
    if damage is not None:
        reason = f"checkpoint is damaged: {damage}"
        return _refuse(Code.CHECKPOINT_DAMAGED_ERR, reason, found, batch)
    lost = [n for n in range(batch + 1, found.committed + 1) if found.in_table[n]]
    if lost:
        reason = (
            f"table is older than its checkpoint: the table ends at {_shown(batch)}, "
            f"but the checkpoint contains the committed batch {lost[-1]}"
        )
        return _refuse(Code.TABLE_CHANGED_ERR, reason, found, batch)
    if batch <= found.committed:
        return Continue(batch=found.committed + 1)
    if batch == found.committed + 1:
        return Replay(batch=batch)
    reason = (
        f"checkpoint is older than the table: the checkpoint ends at "
        f"{_shown(found.committed)}, the table at {_shown(batch)}"
    )
    return _refuse(Code.CHECKPOINT_BEHIND_ERR, reason, found, batch)


def _damage(found: Found, batch: int) -> str | None:
    """Return what is wrong with the files of the checkpoint; None if they are complete."""
    if not found.committed <= found.opened <= found.committed + 1:
        return f"offsets end at {_shown(found.opened)}, commits at {_shown(found.committed)}"
    for number in range(batch + 1, found.committed + 1):
        if number not in found.in_table:
            return f"the plan of batch {number} is missing"
    if found.missing:
        return f'"{found.missing[0]}" is missing or unreadable'
    return None


def _refuse(code: Code, reason: str, found: Found, batch: int) -> Refuse:
    detail = (
        f"The newest commit of Spark is {_shown(found.committed)}, the newest offset is "
        f"{_shown(found.opened)}, and the table ends at {_shown(batch)}."
    )
    return Refuse(code=code, reason=reason, detail=detail)


def _shown(batch: int) -> str:
    return "no batch" if batch == NO_BATCH else f"batch {batch}"
