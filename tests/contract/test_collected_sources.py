"""The contract suite of sources runs for every source kind of the registry."""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from penstock.sources.registry import source_kinds
from tests.contract.source_worlds import WORLDS

ROOT = Path(__file__).parents[2]
SUITE = "tests/contract/test_sources.py"


def collected() -> Counter[str]:
    """Return the number of collected tests of the suite by world, with all settings."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, SUITE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ids = [line for line in done.stdout.splitlines() if line.startswith(SUITE)]
    return Counter(
        world.__name__ for world in WORLDS for one in ids if f"[{world.__name__}]" in one
    )


def test_t14_tests_are_collected_for_every_source_kind() -> None:
    found = collected()

    counts = {world.kind.name: found[world.__name__] > 0 for world in WORLDS}
    assert counts == {kind.name: True for kind in source_kinds()}


def test_t14_the_default_test_command_collects_the_suite_of_sources() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]

    assert settings["testpaths"] == ["tests"]
    assert not settings.keys() & {"norecursedirs", "python_files", "collect_ignore"}
