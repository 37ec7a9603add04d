"""The key of a node: its source, its permissions, and what it decrypts."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError, UserError
from penstock.secrets.sealing import VARIABLE, Sealer, load_sealer, unsealed_with
from tests.error_values import assert_names, raises

KEY = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "secret.key"


@pytest.mark.parametrize("text", ["", "AKIA", "a\nb'\"\\é😀", "x" * 100_000])
def test_an_encrypted_text_can_be_decrypted(text: str) -> None:
    sealed = Sealer(KEY).seal(text)

    assert Sealer(KEY).open(sealed) == text


def test_a_ciphertext_contains_neither_the_text_nor_the_key() -> None:
    sealed = Sealer(KEY).seal("AKIA0123456789")

    assert "AKIA" not in sealed
    assert KEY not in sealed
    assert sealed != Sealer(KEY).seal("AKIA0123456789")


def test_another_key_is_recognized_by_its_id() -> None:
    sealed = Sealer(KEY).seal("AKIA0123456789")
    other = Sealer("another key of some length")

    with pytest.raises(UserError) as refusal:
        other.open(sealed)

    assert Sealer(KEY).key_id in refusal.value.message
    assert other.key_id in refusal.value.message
    assert refusal.value.code is Code.SETTINGS_ERR
    assert_names(refusal.value.hint, "ALTER SECRET")


@pytest.mark.parametrize("damage", ["", "x", "é", "gAAAAA"])
def test_a_damaged_ciphertext_is_refused(damage: str) -> None:
    sealer = Sealer(KEY)

    with raises(UserError, Code.SETTINGS_ERR, "damaged"):
        sealer.open(f"{sealer.key_id}:{damage}")


def test_a_key_file_is_created_once_and_only_its_owner_reads_it(key_file: Path) -> None:
    first = load_sealer(key_file, create=True)
    second = load_sealer(key_file, create=True)

    assert first.key_id == second.key_id
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert [path.name for path in key_file.parent.iterdir()] == ["secret.key"]


def test_two_homes_have_different_keys(tmp_path: Path) -> None:
    first = load_sealer(tmp_path / "a", create=True)
    second = load_sealer(tmp_path / "b", create=True)

    assert first.key_id != second.key_id


def test_decrypting_does_not_create_a_missing_key_file(key_file: Path) -> None:
    with raises(UserError, Code.SETTINGS_ERR, 'secret.key"') as refusal:
        load_sealer(key_file, create=False)

    assert VARIABLE in refusal.value.hint
    assert not key_file.exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o666])
def test_a_key_file_that_other_users_can_access_is_refused(key_file: Path, mode: int) -> None:
    load_sealer(key_file, create=True)
    key_file.chmod(mode)

    with raises(UserError, Code.SETTINGS_ERR, '/secret.key"', f"{mode:04o}") as refusal:
        load_sealer(key_file, create=True)

    assert_names(refusal.value.hint, f'chmod 600 "{key_file}"')
    assert key_file.read_text().strip() not in str(refusal.value)


def test_the_environment_overrides_the_key_file(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_sealer(key_file, create=True)
    monkeypatch.setenv(VARIABLE, KEY)

    assert load_sealer(key_file, create=False).key_id == Sealer(KEY).key_id


def test_a_key_in_the_environment_needs_no_file(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)

    load_sealer(key_file, create=True)

    assert not key_file.exists()


def test_the_content_of_the_key_file_can_move_to_the_environment(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = load_sealer(key_file, create=True).seal("AKIA")
    monkeypatch.setenv(VARIABLE, key_file.read_text())
    key_file.unlink()

    assert load_sealer(key_file, create=False).open(sealed) == "AKIA"


def test_a_short_key_is_refused_and_not_printed(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hunter2")

    with raises(UserError, Code.SETTINGS_ERR, "16", "7") as refusal:
        load_sealer(key_file, create=True)

    assert "hunter2" not in refusal.value.message + refusal.value.detail + refusal.value.hint
    assert refusal.value.code is Code.SETTINGS_ERR


def test_an_empty_key_file_is_refused(key_file: Path) -> None:
    key_file.touch(mode=0o600)

    with raises(UserError, Code.SETTINGS_ERR, "16", "0"):
        load_sealer(key_file, create=True)


def test_a_key_file_that_cannot_be_read_or_created_is_reported(tmp_path: Path) -> None:
    with raises(ExternalError, Code.STORAGE_ERR, "directory"):
        load_sealer(tmp_path, create=True)
    with raises(ExternalError, Code.STORAGE_ERR, "No such file"):
        load_sealer(tmp_path / "missing" / "secret.key", create=True)


def test_processes_that_create_the_key_at_the_same_time_get_the_same_key(
    key_file: Path,
) -> None:
    program = (
        "from pathlib import Path\n"
        "from penstock.secrets.sealing import load_sealer\n"
        f"print(load_sealer(Path({str(key_file)!r}), create=True).key_id)\n"
    )

    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]

    assert len({process.communicate()[0] for process in processes}) == 1
    assert [path.name for path in key_file.parent.iterdir()] == ["secret.key"]


def test_a_task_decrypts_options_with_only_the_path_of_the_key_file(key_file: Path) -> None:
    sealed = load_sealer(key_file, create=True).seal('{"s3.secret_key": "é"}')

    assert unsealed_with(str(key_file), sealed) == {"s3.secret_key": "é"}


def test_loading_a_key_does_not_import_the_encryption_library(key_file: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from penstock.secrets.sealing import load_sealer\n"
        f"load_sealer(Path({str(key_file)!r}), create=True)\n"
        "print('cryptography' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
