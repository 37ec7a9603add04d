"""Commits in every store of the catalog: progress, ledger, files."""

from datetime import timedelta

from penstock.catalog.catalog import Catalog
from penstock.catalog.database import CommitGapError
from penstock.errors import Code
from penstock.model.epoch import CommitKind
from penstock.model.events import EpochEnded, Outcome
from penstock.model.job import DesiredState, Reason
from penstock.model.split import After, Horizon
from tests.contract.catalog.building import (
    COUNTED,
    FIRST,
    JOB,
    PAUSED,
    SECOND,
    START,
    apply,
    commit,
    create_job,
    files,
    move,
    progress,
    started,
)
from tests.error_values import raises


def test_a_commit_advances_progress_statistics_ledger_and_files(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.append(JOB, started(1), expected=FIRST)
    attachment = commit(2, "a", "b", cumulative=COUNTED)

    state = apply(catalog, attachment)

    assert (state.number, state.epoch_committed, state.cumulative) == (2, 1, COUNTED)
    assert state.progress == progress(After(value="b"))
    assert catalog.files_of(JOB).known(["a", "b", "z"]) == {"a": "v1", "b": "v1"}
    entry = catalog.ledger(JOB)[-1]
    assert (entry.outcome, entry.number, entry.table_version) == (Outcome.COMMITTED, 2, 2)
    # The start was stored after 0.25 s of planning.
    assert entry.started_at == START - timedelta(seconds=0.25)
    assert entry.commit_seconds == 0.125


def test_a_commit_is_applied_under_any_generation(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.append(JOB, PAUSED, expected=FIRST)

    state = apply(catalog, commit(2, "a", generation=FIRST))

    assert (state.number, state.generation, state.desired.state) == (
        2,
        SECOND,
        DesiredState.PAUSE,
    )


def test_a_commit_is_refused_while_an_earlier_one_is_missing(catalog: Catalog) -> None:
    before = create_job(catalog)

    with raises(CommitGapError, Code.CATALOG_BEHIND_ERR, "commit 1", "commit 3"):
        apply(catalog, commit(3, "c"))

    assert catalog.job_by_id(JOB) == before
    assert catalog.files_of(JOB).count() == 0


def test_a_fence_changes_neither_files_nor_progress(catalog: Catalog) -> None:
    create_job(catalog)
    loaded = apply(catalog, commit(2, "a"))

    state = apply(catalog, commit(3, kind=CommitKind.FENCE, progress=loaded.progress))

    assert (state.number, state.progress) == (3, progress(After(value="a")))
    assert catalog.files_of(JOB).known(["a", "b", "z"]) == {"a": "v1"}


def test_a_file_that_is_loaded_again_gets_its_new_etag(catalog: Catalog) -> None:
    create_job(catalog)
    apply(catalog, commit(2, "a", "b"))

    apply(catalog, commit(3, items=files("b", etag="v2")))

    assert catalog.files_of(JOB).known(["a", "b"]) == {"a": "v1", "b": "v2"}


def test_files_are_compared_by_their_bytes(catalog: Catalog) -> None:
    create_job(catalog)
    apply(catalog, commit(2, "B", "a", "z", "é", "\uffee", "😀"))

    assert set(catalog.files_of(JOB).known(["a", "z", "é", "x"])) == {"a", "z", "é"}
    assert set(catalog.files_of(JOB).known(["\uffee", "😀", "\ufffd"])) == {"\uffee", "😀"}
    assert set(catalog.files_of(JOB).known(["A", "B", "b"])) == {"B"}
    assert catalog.files_of(JOB).count() == 6


def test_a_move_removes_the_files_above_its_floor(catalog: Catalog) -> None:
    create_job(catalog)
    apply(catalog, commit(2, "a", "b", "é", "\uffee", "😀"))

    state = apply(catalog, move(3, After(value="é")))

    assert set(catalog.files_of(JOB).known(["a", "b", "c", "é", "z", "😀"])) == {"a", "b", "é"}
    assert state.progress == progress(After(value="é"), floor=After(value="é"))


def test_a_move_to_the_horizon_removes_all_files_of_its_own_job(catalog: Catalog) -> None:
    create_job(catalog)
    create_job(catalog, "other", "job-2")
    apply(catalog, commit(2, "a", "b"))
    apply(catalog, commit(2, "a", job_id="job-2"))

    apply(catalog, move(3, Horizon()))

    assert (catalog.files_of(JOB).count(), catalog.files_of("job-2").count()) == (0, 1)


def test_attempts_that_never_ended_are_cancelled(catalog: Catalog) -> None:
    create_job(catalog)
    failed = EpochEnded(
        attempt_id="attempt-2",
        epoch=1,
        attempt=1,
        outcome=Outcome.FAILED,
        reason=Reason(code=Code.STORAGE_ERR, message="bucket is gone"),
        run_seconds=2.5,
    )
    catalog.append(JOB, started(1), failed, started(1, 2), started(1, 3), expected=FIRST)

    assert catalog.cancel_open_attempts(JOB) == 2
    assert catalog.cancel_open_attempts(JOB) == 0

    outcomes = [entry.outcome for entry in catalog.ledger(JOB)]
    assert outcomes[1:] == [Outcome.FAILED, Outcome.CANCELLED, Outcome.CANCELLED]
    assert catalog.ledger(JOB)[1].reason == failed.reason


def test_a_cancelled_attempt_whose_commit_is_found_counts_as_committed(
    catalog: Catalog,
) -> None:
    create_job(catalog)
    catalog.append(JOB, started(1), expected=FIRST)
    catalog.cancel_open_attempts(JOB)

    apply(catalog, commit(2, "a"))

    assert catalog.ledger_counts(JOB) == {Outcome.COMMITTED: 2}
    assert catalog.ledger_counts(JOB, kind=CommitKind.EPOCH) == {Outcome.COMMITTED: 1}


def test_the_ledger_returns_its_newest_entries_in_order_of_appearance(
    catalog: Catalog,
) -> None:
    create_job(catalog)
    catalog.append(JOB, started(1), started(2), started(3), expected=FIRST)
    apply(catalog, commit(2, "a"))

    newest = catalog.ledger(JOB, newest=3)

    assert [entry.attempt_id for entry in newest] == ["attempt-2", "attempt-3", "attempt-4"]
    assert catalog.ledger_counts(JOB) == {Outcome.COMMITTED: 2, Outcome.STARTED: 2}
