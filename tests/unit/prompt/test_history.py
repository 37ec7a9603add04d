"""The stored history of the prompt, without secrets."""

from pathlib import Path

import pytest

from penstock.cli.prompt.editor import ENTRIES_MAX, History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


def opened(path: Path, reported: list[str] | None = None) -> History:
    return History(path, report=(reported if reported is not None else []).append)


def loaded(path: Path) -> list[str]:
    """Return the entries that a new prompt starts with, the oldest first."""
    return list(opened(path).load_history_strings())[::-1]


def test_the_history_returns_whole_statements_in_order(path: Path) -> None:
    opened(path).append_string("SHOW JOBS;")
    opened(path).append_string("SELECT 'ä'\nFROM t;")

    assert loaded(path) == ["SHOW JOBS;", "SELECT 'ä'\nFROM t;"]


def test_only_the_owner_can_read_the_history_file(path: Path) -> None:
    path.touch(0o666)

    opened(path).append_string("SHOW JOBS;")

    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE JOB j DO INSERT FROM FILES('s3.secret_key' = 'hunter2', nonsense)",
        "CREATE SECRET lake (s3.secret_key = 'hunter2');",
        "CREATE SECRET lake (s3.secret_key = 'hunter2",
        "  ",
    ],
)
def test_statements_with_secrets_and_empty_statements_are_not_stored(
    path: Path, statement: str
) -> None:
    history = opened(path)

    history.append_string(statement)

    assert history.get_strings() == []
    assert not path.exists()


def test_damaged_lines_of_the_history_file_are_skipped(path: Path) -> None:
    path.write_bytes(b"\n# now\n+SHOW JOBS;\nSHOW TAB\n\xff\xfe\n{}\n+DESCRIBE t;\n")

    assert loaded(path) == ["SHOW JOBS;", "DESCRIBE t;"]


def test_the_oldest_entries_are_removed_from_a_long_file(path: Path) -> None:
    entries = [f"DESCRIBE t{number};" for number in range(2 * ENTRIES_MAX + 1)]
    path.write_text("".join(f"\n# now\n+{entry}\n" for entry in entries))

    first, second = loaded(path), loaded(path)

    assert first == second == entries[-ENTRIES_MAX:]
    assert path.read_text().count("+DESCRIBE") == ENTRIES_MAX
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_saved_is_reported_once_and_works_in_memory(
    tmp_path: Path,
) -> None:
    reported: list[str] = []
    history = opened(tmp_path / "missing" / "history", reported)

    history.append_string("SHOW JOBS;")
    history.append_string("SHOW TABLES;")

    assert history.get_strings() == ["SHOW JOBS;", "SHOW TABLES;"]
    assert reported == ["the history is not saved: No such file or directory"]
