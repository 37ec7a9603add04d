"""The error window after an epoch, and its error message."""

from dataclasses import replace

from penstock.epochs.ack import next_window, too_many_errors
from penstock.model.epoch import ErrorWindow, Statistics, Tripped
from penstock.model.job import JobDefinition, LoadProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions
from penstock.sources.registry import source_ref
from tests.contract.catalog.building import DEFINITION

PROPERTIES = RoutineProperties(max_error_number=5, max_batch_rows=10)
LOAD: JobDefinition = replace(
    DEFINITION,
    job_kind="ROUTINE_LOAD",
    source=source_ref(KINESIS, KinesisOptions(region="us-east-1", stream="orders")),
    properties=PROPERTIES,
    load=LoadProperties(),
)


def after(
    window: ErrorWindow, *, rows: int = 1, errors: int = 0, foreign: int = 0, first: str = ""
) -> ErrorWindow:
    """Return the window after one more epoch."""
    epoch = Statistics(rows_read=rows, rows_rejected=errors + foreign, rows_foreign=foreign)
    return next_window(window, epoch, first=first, definition=LOAD)


def test_the_window_has_the_message_of_the_latest_epoch_with_errors() -> None:
    one = after(ErrorWindow(), errors=1, first="one")
    two = after(one, errors=1, first="two")
    good = after(two)

    assert [window.first for window in (one, two, good)] == ["one", "two", "two"]


def test_a_record_of_another_shard_does_not_count_as_an_error() -> None:
    window = after(after(ErrorWindow(), errors=1, first="one"), foreign=1, first="foreign")

    assert (window.errors, window.first) == (1, "one")


def test_a_full_window_starts_again_without_a_message() -> None:
    window = after(after(ErrorWindow(), errors=1, first="one"), rows=100)

    assert window == ErrorWindow()


def test_an_exceeded_window_keeps_its_message_until_the_next_epoch() -> None:
    full = after(ErrorWindow(), rows=9, errors=6, first="one")

    assert (full.errors, full.first) == (0, "one")
    assert full.tripped
    assert after(full).first == ""


def test_the_error_shows_all_digits_of_a_large_limit() -> None:
    tripped = Tripped(
        limit="max_error_number", limit_value=1_234_567, rows=2_000_000, errors=1_234_568
    )

    assert "max_error_number is 1234567" in str(too_many_errors(tripped))
