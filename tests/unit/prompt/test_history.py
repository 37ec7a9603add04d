"""What was typed is kept, whole and without secrets."""

import json
from pathlib import Path

import pytest

from penstock.cli.prompt.editor import ENTRIES_MAX, HistoryFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


def opened(path: Path, told: list[str] | None = None) -> HistoryFile:
    return HistoryFile(path, tell=(told if told is not None else []).append)


def test_what_was_kept_is_there_again_whole_and_in_order(path: Path) -> None:
    opened(path).keep("SHOW JOBS;")
    opened(path).keep("SELECT 'ä'\nFROM t;")

    assert opened(path).load() == ["SHOW JOBS;", "SELECT 'ä'\nFROM t;"]


def test_only_its_owner_can_read_the_file(path: Path) -> None:
    path.touch(0o666)

    opened(path).keep("SHOW JOBS;")

    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE JOB j DO INSERT FROM FILES('s3.secret_key' = 'hunter2', nonsense)",
        "CREATE SECRET lake (s3.secret_key = 'hunter2');",
        "CREATE SECRET lake (s3.secret_key = 'hunter2",
    ],
)
def test_no_secret_is_kept(path: Path, statement: str) -> None:
    kept = opened(path).keep(statement)

    assert "hunter2" not in kept
    assert not path.exists() or "hunter2" not in path.read_text()


def test_a_text_of_which_nothing_may_be_kept_leaves_no_entry(path: Path) -> None:
    kept = HistoryFile(path, tell=print, mask=lambda _: "").keep("SHOW JOBS;")

    assert kept == ""
    assert opened(path).load() == []


def test_damaged_lines_are_no_entries(path: Path) -> None:
    path.write_bytes(b'"SHOW JOBS;"\n"SHOW TAB\n\xff\xfe\n{}\n"DESCRIBE t;"\n')

    assert opened(path).load() == ["SHOW JOBS;", "DESCRIBE t;"]


def test_what_lies_too_far_back_is_forgotten(path: Path) -> None:
    entries = [f"DESCRIBE t{number};" for number in range(2 * ENTRIES_MAX + 1)]
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))

    loaded = opened(path).load()

    assert loaded == entries[-ENTRIES_MAX:]
    assert len(path.read_text().splitlines()) == ENTRIES_MAX
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_kept_is_told_once_and_hinders_nobody(tmp_path: Path) -> None:
    told: list[str] = []
    history = opened(tmp_path / "missing" / "history", told)

    kept = [history.keep("SHOW JOBS;"), history.keep("SHOW TABLES;")]

    assert kept == ["SHOW JOBS;", "SHOW TABLES;"]
    assert told == ["what is typed is not kept: No such file or directory"]
