"""Globs match like slower references: Python's glob on a real tree, and backtracking."""

import glob as python_glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.sources.files.globs import PREFIXES_MAX, Glob

PARTS = [
    "*",
    "**",
    "?",
    "a*",
    "*b",
    "[ab]",
    "[!a]",
    ".h",
    ".*",
    "[.]h",
    "a",
    "b",
    "*.j",
    "a?",
    "?*",
]
NAMES = ["a", "b", "ab", ".h", "a.j", ".j", "é"]

keys = st.text(st.sampled_from("ab./1é"), max_size=8).map(lambda text: "/" + text)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for outer in NAMES:
        for inner in NAMES:
            folder = root / f"{outer}d" / inner
            folder.mkdir(parents=True)
            (folder / "a").touch()
            (folder / ".h").touch()
        (root / outer).touch()
    return root


@given(parts=st.lists(st.sampled_from([*PARTS, "ad", "?d", ".hd"]), min_size=1, max_size=4))
def test_patterns_without_braces_match_what_pythons_glob_finds(
    tree: Path, parts: list[str]
) -> None:
    pattern = f"{tree}/{'/'.join(parts)}"
    files = [str(path) for path in tree.rglob("*") if path.is_file()]

    found = filter(Glob(pattern).matches, files)

    # Unlike a shell, Path.glob matches hidden files.
    expected = set(python_glob.glob(pattern, recursive=True)) & set(files)  # noqa: PTH207
    assert set(found) == expected


# Yields every end of a match that starts at the given offset of the key.
Matcher = Callable[[str, int], Iterator[int]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The text of a pattern, and a slow reference implementation."""

    text: str
    ends: Matcher = field(repr=False)


def literal(text: str) -> Pattern:
    def ends(key: str, at: int) -> Iterator[int]:
        if key.startswith(text, at):
            yield at + len(text)

    return Pattern(text, ends)


def one_of(text: str, accepted: str) -> Pattern:
    def ends(key: str, at: int) -> Iterator[int]:
        if key[at : at + 1] in set(accepted) and not hidden(key, at):
            yield at + 1

    return Pattern(text, ends)


def star() -> Pattern:
    def ends(key: str, at: int) -> Iterator[int]:
        if not hidden(key, at):
            yield from range(at, at + len(key[at:].partition("/")[0]) + 1)

    return Pattern("*", ends)


def hidden(key: str, at: int) -> bool:
    return key[at - 1 : at + 1] == "/."


def sequence(parts: list[Pattern]) -> Pattern:
    def ends(key: str, at: int, number: int = 0) -> Iterator[int]:
        if number == len(parts):
            yield at
            return
        for middle in parts[number].ends(key, at):
            yield from ends(key, middle, number + 1)

    return Pattern("".join(part.text for part in parts), ends)


def braces(branches: list[Pattern]) -> Pattern:
    def ends(key: str, at: int) -> Iterator[int]:
        return chain.from_iterable(branch.ends(key, at) for branch in branches)

    return Pattern("{" + ",".join(branch.text for branch in branches) + "}", ends)


leaves = st.sampled_from(
    [
        *map(literal, ["a", "b", ".", "1", "/", "é", "a/"]),
        star(),
        one_of("?", "ab.1é"),
        one_of("[!a]", "b.1é"),
        one_of("[a-b1.]", "ab1."),
    ]
)
nested = st.recursive(
    leaves,
    lambda inner: st.lists(
        st.lists(inner, max_size=3).map(sequence), min_size=1, max_size=3
    ).map(braces),
    max_leaves=10,
)
# Two adjacent stars are another wildcard, and a final slash means all files in a folder.
patterns = (
    st.lists(nested, min_size=1, max_size=5)
    .map(lambda parts: sequence([literal("/"), *parts]))
    .filter(lambda pattern: "**" not in pattern.text and not pattern.text.endswith("/"))
)


@settings(max_examples=500)
@given(pattern=patterns, key=keys)
def test_patterns_with_braces_match_what_plain_backtracking_finds(
    pattern: Pattern, key: str
) -> None:
    matched = Glob(pattern.text).matches(key)

    assert matched == (len(key) in pattern.ends(key, 0))


@given(pattern=patterns, key=keys)
def test_a_match_is_below_a_prefix_and_in_folders_that_can_contain_it(
    pattern: Pattern, key: str
) -> None:
    glob = Glob(pattern.text)
    folders = [key[: at + 1] for at, char in enumerate(key) if char == "/"]

    matched = glob.matches(key)

    assert not matched or key.startswith(glob.prefixes)
    assert not matched or all(map(glob.may_contain, folders))


@given(pattern=patterns)
def test_prefixes_are_few_sorted_folders_that_do_not_overlap(pattern: Pattern) -> None:
    prefixes = Glob(pattern.text).prefixes

    assert len(prefixes) <= PREFIXES_MAX
    assert list(prefixes) == sorted(prefixes, key=str.encode)
    assert all(prefix.endswith("/") for prefix in prefixes)
    assert not any(a != b and a.startswith(b) for a in prefixes for b in prefixes)


numbers = st.integers(min_value=0, max_value=10**18 - 1) | st.integers(0, 2000)


@given(first=numbers, last=numbers, number=numbers)
def test_a_range_matches_exactly_its_numbers(first: int, last: int, number: int) -> None:
    glob = Glob(f"/{{{first}..{last}}}")

    low, high = sorted((first, last))

    assert glob.matches(f"/{number}") == (low <= number <= high)
    assert glob.matches(f"/{low}")
    assert glob.matches(f"/{high}")
    assert not glob.matches(f"/{high + 1}")
    assert not glob.matches(f"/0{low}")


@given(pattern=st.text(st.sampled_from("ab/*?[]{},.!^-\\1"), max_size=30), key=keys)
def test_any_text_is_a_valid_pattern_or_refused_with_a_reason(pattern: str, key: str) -> None:
    refusal = refusal_of(pattern, key)

    assert refusal is None or "position" in refusal


def refusal_of(pattern: str, key: str) -> str | None:
    try:
        Glob(pattern).matches(key)
    except UserError as refusal:
        return refusal.message
    return None


@given(key=st.text(min_size=1))
def test_an_escaped_key_matches_itself_and_nothing_longer(key: str) -> None:
    escaped = "".join("\\" + char for char in key) + ("" if key[-1] != "/" else "x")

    glob = Glob(escaped)

    assert glob.matches(key + ("" if key[-1] != "/" else "x"))
    assert not glob.matches(key + "xy")
