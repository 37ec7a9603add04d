"""Listing by pattern: matching keys only, in byte order over all prefixes."""

from pathlib import Path

from penstock.errors import Code
from penstock.sources.files.globs import Glob, list_all
from penstock.storage.local import LocalStore
from penstock.storage.store import FolderMissingError
from tests.error_values import raises


def test_t42_a_sibling_that_does_not_match_is_not_a_new_file(tmp_path: Path) -> None:
    put(tmp_path, "in/a.json", "in/b.csv", "in-old/c.json", "in/deeper/d.json")

    keys = listed(tmp_path, "in/*.json")

    assert keys == ["in/a.json"]


def test_t42_keys_of_several_prefixes_are_sorted_globally(tmp_path: Path) -> None:
    put(tmp_path, "b/1", "a/2", "a-b/0", "a/1")

    keys = listed(tmp_path, "{b,a,a-b}/")

    assert keys == ["a-b/0", "a/1", "a/2", "b/1"]


def test_t42_keys_are_in_byte_order_not_in_utf_16_order(tmp_path: Path) -> None:
    put(tmp_path, "\U0001f600.json", "\uff5e.json", "\ue000.json", "z.json")

    keys = listed(tmp_path, "*.json")

    assert keys == ["z.json", "\ue000.json", "\uff5e.json", "\U0001f600.json"]


def test_a_missing_folder_of_one_alternative_is_ignored(tmp_path: Path) -> None:
    put(tmp_path, "day=2/a")

    keys = listed(tmp_path, "day={1..3}/*")

    assert keys == ["day=2/a"]


def test_a_listing_fails_when_every_folder_of_the_pattern_is_missing(tmp_path: Path) -> None:
    with raises(FolderMissingError, Code.GET_REMOTE_DATA_ERROR, 'day=1/"'):
        listed(tmp_path, "day={1..3}/*")


def test_a_name_that_cannot_match_does_not_fail_the_listing(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "odd-\udcff.csv")

    keys = listed(tmp_path, "*.json")

    assert keys == ["a.json"]


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def listed(folder: Path, pattern: str) -> list[str]:
    glob = Glob(f"{folder}/{pattern}")
    return [meta.key.removeprefix(f"{folder}/") for meta in list_all(LocalStore(), glob)]
