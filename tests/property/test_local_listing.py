"""The listing of a folder contains every file once, in byte order of the full keys."""

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.files.globs import Glob, list_all
from penstock.storage.local import LocalStore
from penstock.storage.store import FolderMissingError

NAMES = [
    "a",
    "a-b",
    "a b",
    "a.b",
    "a0",
    "A",
    "é",
    "\uff5e",
    "\ue000",
    "\U0001f600",
    "a\n",
    "\x01",
]

names = st.sampled_from(NAMES) | st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=5
).filter(lambda name: name not in {".", ".."})
trees = st.lists(st.lists(names, min_size=1, max_size=4), max_size=12)


class Everything:
    """A selection of every key."""

    def matches(self, _key: str) -> bool:
        return True

    def may_contain(self, _folder: str) -> bool:
        return True


@settings(max_examples=150, deadline=None)
@given(tree=trees)
def test_a_listing_contains_every_file_in_byte_order(tree: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        written = {path for parts in tree if (path := put(Path(root), parts))}

        found = [meta.key for meta in LocalStore().list(f"{root}/", selection=Everything())]

    assert found == sorted(written, key=os.fsencode)


@settings(max_examples=150, deadline=None)
@given(
    tree=trees,
    pattern=st.sampled_from(
        ["**", "*", "*/*", "{a-b,a,é}/*", "{\U0001f600,\uff5e,a/a,a/a-b}/**", "a*/**/a", "**/?"]
    ),
)
def test_a_listing_by_pattern_contains_every_matching_file_in_byte_order(
    tree: list[list[str]], pattern: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        written = {path for parts in tree if (path := put(Path(root), parts))}
        glob = Glob(f"{root}/{pattern}")

        found = matching(glob)

    assert found == sorted(filter(glob.matches, written), key=os.fsencode)


def matching(glob: Glob) -> list[str]:
    try:
        return [meta.key for meta in list_all(LocalStore(), glob)]
    except FolderMissingError:
        return []


def put(root: Path, parts: list[str]) -> str:
    """Write a file, unless its path conflicts with an existing file or folder."""
    path = root.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        return ""
    return str(path)
