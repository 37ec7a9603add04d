"""Globs: matching keys, prefixes to list, and malformed patterns."""

import pytest

from penstock.errors import Code, UserError
from penstock.sources.files.globs import PREFIXES_MAX, Glob
from tests.error_values import assert_names, raises


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("/in/a.json", "/in/a.json"),
        ("/in/*.json", "/in/a.json"),
        ("/in/a*", "/in/a"),
        ("/in/?.json", "/in/😀.json"),
        ("/in/[abc].json", "/in/b.json"),
        ("/in/[a-c0-9].json", "/in/7.json"),
        ("/in/[!a].json", "/in/b.json"),
        ("/in/[^a].json", "/in/b.json"),
        ("/in/[]a].json", "/in/].json"),
        ("/in/[a-].json", "/in/-.json"),
        (r"/in/[\]].json", "/in/].json"),
        ("/in/{a,b}.json", "/in/b.json"),
        ("/in/{a,b{1,2*}}.json", "/in/b23.json"),
        ("/in/x{,.gz}", "/in/x"),
        ("/{in,out/old}/a", "/out/old/a"),
        ("/in/{1..3}.json", "/in/2.json"),
        ("/in/{3..1}.json", "/in/2.json"),
        ("/in/{1..3,5,7..9}.json", "/in/8.json"),
        ("/in/{01..03}.json", "/in/1.json"),
        ("/in/{-3..-1,x}.json", "/in/x.json"),
        ("/in/{a..c}.json", "/in/a..c.json"),
        (r"/in/\*\{a\\.json", "/in/*{a\\.json"),
        ("/in/a}.json", "/in/a}.json"),
        ("/in/**", "/in/a"),
        ("/in/**", "/in/a/b/c"),
        ("/in/**/c", "/in/c"),
        ("/in/**/c", "/in/a/b/c"),
        ("/in/a**c", "/in/a/b/c"),
        ("**/c", "a/c"),
        ("/in/", "/in/a.json"),
        ("/in/100%.json", "/in/100%.json"),
    ],
)
def test_a_key_matches_its_pattern(pattern: str, key: str) -> None:
    glob = Glob(pattern)

    matched = glob.matches(key)

    assert matched


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("/in/a.json", "/in/a.jsonl"),
        ("/in/a.json", "/in/aXjson"),
        ("/in/*.json", "/in/b/a.json"),
        ("/in?a", "/in/a"),
        ("/in[!x]a", "/in/a"),
        ("/in[+-9]a", "/in/a"),
        ("/in/[!a].json", "/in/a.json"),
        ("/in/{a,b}.json", "/in/c.json"),
        ("/in/{1..3}.json", "/in/4.json"),
        ("/in/{01..03}.json", "/in/01.json"),
        ("/in/{-3..-1}.json", "/in/-2.json"),
        ("/in/{-1..4}.json", "/in/2.json"),
        ("/in/**/c", "/in/bc"),
        ("/in/a**/c", "/in/ac"),
        ("/in/", "/in/a/b.json"),
        (r"/in/\*.json", "/in/a.json"),
        ("/in/*", "/in/a/"),
    ],
)
def test_a_key_that_only_resembles_its_pattern_does_not_match(pattern: str, key: str) -> None:
    glob = Glob(pattern)

    matched = glob.matches(key)

    assert not matched


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("/in/*", "/in/.a", False),
        ("/in/*.json", "/in/.json", False),
        ("/in/?a", "/in/.a", False),
        ("/in/[.]a", "/in/.a", False),
        ("/in/[!b]a", "/in/.a", False),
        ("/in/{,x}*", "/in/.a", False),
        ("/in/{*,b}", "/in/.a", False),
        ("/in/**", "/in/.git/a", False),
        ("/in/**", "/in/a/.b", False),
        ("/in/**/a", "/in/.git/a", False),
        ("/in/**.json", "/in/a/.json", False),
        ("/*/a", "/.in/a", False),
        ("/in/.*", "/in/.a", True),
        ("/in/{.a,b}", "/in/.a", True),
        (r"/in/\.a", "/in/.a", True),
        ("/in/**/.a", "/in/b/.a", True),
        ("/in/**/.a", "/in/.a", True),
        ("/.in/*", "/.in/a", True),
        ("/in/a*", "/in/a.b", True),
    ],
)
def test_only_a_literal_dot_matches_a_leading_dot(
    pattern: str, key: str, *, expected: bool
) -> None:
    glob = Glob(pattern)

    matched = glob.matches(key)

    assert matched is expected


@pytest.mark.parametrize(
    ("pattern", "prefixes"),
    [
        ("/in/a.json", ("/in/",)),
        ("/in/*.json", ("/in/",)),
        ("/in/x*/a.json", ("/in/",)),
        ("/in/**/a.json", ("/in/",)),
        ("*.json", ("",)),
        ("/{b,a}/*.json", ("/a/", "/b/")),
        ("/in/{b,a}.json", ("/in/",)),
        ("/in/day={9..11}/*", ("/in/day=10/", "/in/day=11/", "/in/day=9/")),
        ("/in/[a-c]/*", ("/in/a/", "/in/b/", "/in/c/")),
        ("/in/[!a]/*", ("/in/",)),
        ("/in/{a,a/b,c}/*", ("/in/a/", "/in/c/")),
        ("/in/{a*,b}/x", ("/in/",)),
        ("/in/{a-b,a/b}/x", ("/in/a-b/", "/in/a/b/")),
        ("/in/{\U0001f600,\uff5e}/x", ("/in/\uff5e/", "/in/\U0001f600/")),
        ("/in/{-2..-1}/x", ()),
        (r"/in/\{a\}/x", ("/in/{a}/",)),
        ("in/{de,us,global}/[0-9][0-9]/[0-9][0-9]/*", ("in/de/", "in/global/", "in/us/")),
        ("in/{a,bcd}/{1..200}/{1..3}/*", ("in/a/", "in/bcd/")),
    ],
)
def test_the_prefixes_of_a_pattern_are_its_fixed_folders(
    pattern: str, prefixes: tuple[str, ...]
) -> None:
    glob = Glob(pattern)

    assert glob.prefixes == prefixes


def test_more_alternatives_than_the_limit_are_listed_under_one_wide_prefix() -> None:
    just_enough = Glob(f"/in/{{1..{PREFIXES_MAX}}}/*")
    too_many = Glob(f"/in/{{0..{PREFIXES_MAX}}}/*")

    assert len(just_enough.prefixes) == PREFIXES_MAX
    assert too_many.prefixes == ("/in/",)


def test_braces_with_more_branches_than_the_limit_are_listed_under_one_prefix() -> None:
    branches = ",".join(f"{folder}/{number:03d}" for folder in "ab" for number in range(150))

    assert Glob(f"in/{{{branches}}}/*.json").prefixes == ("in/",)


def test_many_file_names_in_braces_keep_the_folders_before_them() -> None:
    glob = Glob("/in/{a,b}/{1..1000}.json")

    assert glob.prefixes == ("/in/a/", "/in/b/")


@pytest.mark.parametrize(
    ("pattern", "folder", "expected"),
    [
        ("/in/*.json", "/in/", True),
        ("/in/*.json", "/in/a/", False),
        ("/in/a*/b/*", "/in/ax/", True),
        ("/in/a*/b/*", "/in/ax/b/", True),
        ("/in/a*/b/*", "/in/ax/c/", False),
        ("/in/a*/b/*", "/in/b/", False),
        ("/in/**/c", "/in/a/b/", True),
        ("/in/**/c", "/in/.git/", False),
    ],
)
def test_a_glob_excludes_folders_that_cannot_contain_a_match(
    pattern: str, folder: str, *, expected: bool
) -> None:
    glob = Glob(pattern)

    possible = glob.may_contain(folder)

    assert possible is expected


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("/in/[ab", ('"/in/[ab"', '"["', "5", '"]"')),
        ("/in/[]", ('"/in/[]"', '"["', "5", '"]"')),
        ("/in/{a,{b}", ('"/in/{a,{b}"', '"{"', "5", '"}"')),
        ("/in/{", ('"/in/{"', '"{"', "5", '"}"')),
        ("/[z-a]", ('"/[z-a]"', '"["', "2", '"z-a"')),
        ("/a\\", ('"/a\\"', '"\\"', "3")),
    ],
)
def test_a_broken_pattern_is_refused_with_the_position(
    pattern: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as refusal:
        Glob(pattern)

    assert_names(refusal.value.message, *named)
    assert refusal.value.code is Code.OPTION_ERR


def test_a_pattern_that_is_too_long_or_too_deep_is_refused() -> None:
    with raises(UserError, Code.OPTION_ERR, "32768", "40000"):
        Glob("a" * 40_000)
    with raises(UserError, Code.OPTION_ERR, "32", "braces"):
        Glob("{" * 33 + "}" * 33)


def test_matching_is_fast_with_many_stars() -> None:
    glob = Glob("/" + "*a" * 100 + "*{b,c*d}")

    matched = glob.matches("/" + "a" * 5_000)

    assert not matched


def test_many_different_names_do_not_fill_the_memory() -> None:
    glob = Glob("/*?*?*x")
    names = [f"/{chr(number)}ax" for number in range(0x10000, 0x10000 + 100_000)]

    matched = sum(map(glob.matches, names))

    assert matched == len(names)
    assert glob._cached < 300_000
