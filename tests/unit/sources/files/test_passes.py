"""The range of the next poll: no file is skipped, and audits are not late."""

import pytest

from penstock.sources.files.source import PollRange, next_range

FULL = PollRange(audit=True, start="b", end="d")
LAST = PollRange(audit=True, start="d", end="f", complete=True)
NOTHING_NEW = PollRange(audit=True, complete=True)


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("audit_due", [True, False])
def test_the_first_poll_is_an_audit_without_a_start_key(
    *, loaded: bool, audit_due: bool
) -> None:
    found = next_range(None, loaded=loaded, audit_due=audit_due)

    assert found == PollRange(audit=True, start="")


@pytest.mark.parametrize("last", [FULL, LAST])
@pytest.mark.parametrize("audit_due", [True, False])
def test_a_poll_is_repeated_until_all_its_files_are_loaded(
    last: PollRange, *, audit_due: bool
) -> None:
    found = next_range(last, loaded=False, audit_due=audit_due)

    assert found == PollRange(audit=True, start=last.start)


@pytest.mark.parametrize("audit_due", [True, False])
def test_a_pass_continues_after_the_last_file_of_its_previous_poll(*, audit_due: bool) -> None:
    found = next_range(FULL, loaded=True, audit_due=audit_due)

    assert found == PollRange(audit=True, start="d")


@pytest.mark.parametrize("last", [LAST, NOTHING_NEW])
@pytest.mark.parametrize("audit_due", [True, False])
def test_an_audit_follows_a_complete_pass_only_if_it_is_due(
    last: PollRange, *, audit_due: bool
) -> None:
    found = next_range(last, loaded=True, audit_due=audit_due)

    assert found == PollRange(audit=audit_due, start="")


def test_a_due_audit_waits_for_the_end_of_the_pass() -> None:
    incremental = PollRange(audit=False, end="d")

    found = next_range(incremental, loaded=True, audit_due=True)

    assert found == PollRange(audit=False, start="d")


def test_an_incremental_poll_is_not_repeated_as_an_audit() -> None:
    incremental = PollRange(audit=False, start="d", end="f", complete=True)

    found = next_range(incremental, loaded=False, audit_due=True)

    assert found == PollRange(audit=False, start="d")


def test_a_new_range_has_no_end_and_is_not_complete() -> None:
    found = next_range(LAST, loaded=True, audit_due=True)

    assert (found.end, found.complete) == ("", False)
