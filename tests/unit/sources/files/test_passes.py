"""Which look follows which: nothing is left behind, and everything is listed when it is due."""

import pytest

from penstock.sources.files.source import PollRange, next_range

FULL = PollRange(audit=True, begin="b", end="d")
LAST = PollRange(audit=True, begin="d", end="f", complete=True)
NOTHING_NEW = PollRange(audit=True, complete=True)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("audit_due", [True, False])
def test_the_first_look_is_an_audit_from_the_beginning(
    *, settled: bool, audit_due: bool
) -> None:
    look = next_range(None, settled=settled, audit_due=audit_due)

    assert look == PollRange(audit=True, begin="")


@pytest.mark.parametrize("last", [FULL, LAST])
@pytest.mark.parametrize("audit_due", [True, False])
def test_a_look_whose_files_are_not_all_loaded_is_repeated(
    last: PollRange, *, audit_due: bool
) -> None:
    look = next_range(last, settled=False, audit_due=audit_due)

    assert look == PollRange(audit=True, begin=last.begin)


@pytest.mark.parametrize("audit_due", [True, False])
def test_a_look_goes_on_behind_the_last_file_that_was_kept(*, audit_due: bool) -> None:
    look = next_range(FULL, settled=True, audit_due=audit_due)

    assert look == PollRange(audit=True, begin="d")


@pytest.mark.parametrize("last", [LAST, NOTHING_NEW])
@pytest.mark.parametrize("audit_due", [True, False])
def test_a_pass_that_is_over_is_followed_by_what_is_due(
    last: PollRange, *, audit_due: bool
) -> None:
    look = next_range(last, settled=True, audit_due=audit_due)

    assert look == PollRange(audit=audit_due, begin="")


def test_an_audit_that_falls_due_waits_for_the_end_of_the_pass() -> None:
    behind_loaded = PollRange(audit=False, end="d")

    look = next_range(behind_loaded, settled=True, audit_due=True)

    assert look == PollRange(audit=False, begin="d")


def test_a_look_behind_loaded_files_is_repeated_as_such() -> None:
    behind_loaded = PollRange(audit=False, begin="d", end="f", complete=True)

    look = next_range(behind_loaded, settled=False, audit_due=True)

    assert look == PollRange(audit=False, begin="d")


def test_a_new_look_has_seen_nothing_yet() -> None:
    look = next_range(LAST, settled=True, audit_due=True)

    assert (look.end, look.complete) == ("", False)
