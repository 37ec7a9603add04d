"""Order, format and exit code of the findings of doctor."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.doctor import examine as doctor
from penstock.cli.doctor.examine import examine
from penstock.cli.doctor.home import file_system_of
from penstock.cli.doctor.report import (
    Finding,
    Outcome,
    Report,
    Subject,
    finding_lines,
    json_text,
)
from penstock.clock import SystemClock
from penstock.errors import ExternalError
from penstock.settings.settings import Settings

FINE = Finding(check="home", found="/srv/penstock, 3.0 GB free")
BAD = Finding(
    check="job",
    outcome=Outcome.PROBLEM,
    found="orders is paused: a row that cannot be read",
    advice="Fix the file.",
)
MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:5 / /srv rw - nfs4 server:/srv rw
24 23 0:6 / /srv/fast\\040disk rw shared:1 - xfs /dev/sdb rw
"""


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return Subject(
        settings=Settings(home=tmp_path / "home"),
        settings_error=None,
        app=None,
        app_error="",
        quick=True,
        clock=SystemClock(),
    )


def test_a_finding_without_a_width_is_one_line() -> None:
    assert finding_lines(BAD, pretty=False, width=None) == [
        "problem job        orders is paused: a row that cannot be read",
        "                   next: Fix the file.",
    ]


def test_a_finding_is_wrapped_to_the_width_of_the_terminal() -> None:
    assert finding_lines(BAD, pretty=True, width=46) == [
        "✗ job        orders is paused: a row that",
        "             cannot be read",
        "             → Fix the file.",
    ]


def written(*findings: Finding) -> tuple[list[str], int]:
    stream = io.StringIO()
    code = Report(stream=stream, pretty=False, width=None).write(findings)
    return stream.getvalue().splitlines(), code


def test_a_report_without_problems_returns_zero() -> None:
    lines, code = written(FINE)

    assert (lines[-1], code) == ("no problems", 0)


def test_a_report_with_a_problem_counts_it_and_returns_one() -> None:
    lines, code = written(FINE, BAD, Finding(check="a", outcome=Outcome.WARNING, found="b"))

    assert (lines[-1], code) == ("1 problem, 1 warning", 1)


def test_json_contains_all_fields_of_a_finding() -> None:
    text, code = json_text([FINE, BAD])

    assert code == 1
    assert json.loads(text)[1] == {
        "check": "job",
        "outcome": "problem",
        "found": BAD.found,
        "next": "Fix the file.",
    }


def broken(subject: Subject) -> Iterator[Finding]:
    yield FINE
    raise ZeroDivisionError(f"in {subject.home.name}")


def refused(subject: Subject) -> Iterator[Finding]:
    del subject
    raise ExternalError("the disk did not respond", detail="It is off.", hint="Turn it on.")


def test_a_check_that_raises_is_a_problem_and_the_next_check_runs(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"first": broken, "second": refused})

    findings = list(examine(subject))

    assert findings == [
        FINE,
        Finding(check="first", outcome=Outcome.PROBLEM, found="ZeroDivisionError: in home"),
        Finding(
            check="second",
            outcome=Outcome.PROBLEM,
            found="the disk did not respond. It is off",
            advice="Turn it on.",
        ),
    ]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/penstock", "ext4"),
        ("/srv/penstock", "nfs4"),
        ("/srv/fast disk/penstock", "xfs"),
        ("/srvother", "ext4"),
    ],
)
def test_the_file_system_of_a_folder_is_the_nearest_mount_above_it(
    folder: str, kind: str
) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind
