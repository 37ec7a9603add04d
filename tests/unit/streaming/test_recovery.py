"""The restart table: every row with its verdict, and its order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Code
from penstock.streaming.recovery import (
    NO_BATCH,
    Continue,
    Found,
    Refuse,
    Replay,
    Start,
    Verdict,
    decide,
)

OWN = "11111111-2222-3333-4444-555555555555"


def found(committed: int, opened: int, **values: object) -> Found:
    known = {"exists": True, "checkpoint_id": OWN, **values}
    return Found(committed=committed, opened=opened, **known)  # type: ignore[arg-type]


def refused(found: Found, batch: int) -> Refuse:
    verdict = decide(found, checkpoint_id=OWN, batch=batch)
    assert isinstance(verdict, Refuse)
    return verdict


@pytest.mark.parametrize(
    ("folder", "batch", "verdict"),
    [
        (Found(), NO_BATCH, Start()),
        (Found(exists=True), NO_BATCH, Start(delete=True)),
        (found(-1, -1), NO_BATCH, Continue(batch=0)),
        (found(-1, 0), NO_BATCH, Continue(batch=0)),
        (found(4, 4), 4, Continue(batch=5)),
        (found(4, 5), 4, Continue(batch=5)),
        (found(4, 5, in_table={3: False, 4: False}), 2, Continue(batch=5)),
        (found(4, 5), 5, Replay(batch=5)),
        (found(-1, 0), 0, Replay(batch=0)),
    ],
)
def test_a_complete_checkpoint_starts_continues_or_replays(
    folder: Found, batch: int, verdict: Verdict
) -> None:
    assert decide(folder, checkpoint_id=OWN, batch=batch) == verdict


@pytest.mark.parametrize("folder", [Found(), Found(exists=True)])
def test_t45_a_table_with_rows_never_starts_from_zero(folder: Found) -> None:
    verdict = refused(folder, 0)
    assert verdict.code is Code.CHECKPOINT_LOST_ERR
    assert "does not exist" in verdict.reason


def test_t53_a_checkpoint_of_another_table_is_refused() -> None:
    verdict = refused(found(4, 4, checkpoint_id="other"), 4)
    assert verdict.code is Code.CHECKPOINT_FOREIGN_ERR
    assert "other" in verdict.reason
    assert OWN in verdict.reason


@pytest.mark.parametrize(
    ("folder", "batch", "named"),
    [
        (found(4, 3), 4, "offsets end at batch 3, commits at batch 4"),
        (found(4, 6), 4, "offsets end at batch 6, commits at batch 4"),
        (found(4, 4, in_table={4: False}), 2, "plan of batch 3"),
        (found(4, 4, missing=("state/0/1/5_x",)), 4, "state/0/1/5_x"),
    ],
)
def test_t57a_a_damaged_checkpoint_is_refused_and_names_the_item(
    folder: Found, batch: int, named: str
) -> None:
    verdict = refused(folder, batch)
    assert verdict.code is Code.CHECKPOINT_DAMAGED_ERR
    assert named in verdict.reason


def test_a_table_older_than_its_state_is_refused() -> None:
    verdict = refused(found(4, 4, in_table={3: False, 4: True}), 2)
    assert verdict.code is Code.TABLE_CHANGED_ERR
    assert "batch 2" in verdict.reason
    assert "batch 4" in verdict.reason


def test_a_checkpoint_older_than_its_table_is_refused() -> None:
    verdict = refused(found(4, 5), 6)
    assert verdict.code is Code.CHECKPOINT_BEHIND_ERR
    assert "batch 4" in verdict.reason
    assert "batch 6" in verdict.reason


BATCHES = st.integers(-1, 6)


@given(
    exists=st.booleans(),
    checkpoint_id=st.sampled_from([None, OWN, "other"]),
    committed=BATCHES,
    opened=BATCHES,
    in_table=st.dictionaries(st.integers(0, 6), st.booleans()),
    missing=st.sampled_from([(), ("state/0",)]),
    batch=BATCHES,
)
def test_state_and_table_always_agree_after_the_verdict(  # noqa: PLR0913 - One per field.
    *,
    exists: bool,
    checkpoint_id: str | None,
    committed: int,
    opened: int,
    in_table: dict[int, bool],
    missing: tuple[str, ...],
    batch: int,
) -> None:
    folder = Found(
        exists=exists or checkpoint_id is not None,
        checkpoint_id=checkpoint_id,
        committed=committed,
        opened=opened,
        in_table=in_table,
        missing=missing,
    )
    match decide(folder, checkpoint_id=OWN, batch=batch):
        case Start(delete=delete):
            assert batch == NO_BATCH
            assert checkpoint_id is None
            assert delete is exists
        case Continue(batch=next_batch):
            assert (checkpoint_id, missing, next_batch) == (OWN, (), committed + 1)
            assert batch <= committed
            assert not any(in_table[n] for n in range(batch + 1, committed + 1))
        case Replay(batch=again):
            assert (checkpoint_id, missing) == (OWN, ())
            assert again == batch == committed + 1
        case Refuse(reason=reason):
            assert reason
