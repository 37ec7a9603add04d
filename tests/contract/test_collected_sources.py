"""Every kind of source that a job can have is asked by the contract suite of sources."""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import get_args, get_type_hints

from penstock.model.job import JobDefinition

ROOT = Path(__file__).parents[2]
SUITE = "tests/contract/test_sources.py"


def kinds_of_sources() -> list[str]:
    """Answer what the options of a job's source are called, without that word."""
    hint = get_type_hints(JobDefinition)["source"]
    return [kind.__name__.removesuffix("Options") for kind in get_args(hint)]


def collected() -> Counter[str]:
    """Answer how many tests of the suite are collected for each kind, with all settings."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, SUITE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ids = [line for line in done.stdout.splitlines() if line.startswith(SUITE)]
    return Counter(kind for kind in kinds_of_sources() for one in ids if f"[{kind}" in one)


def test_t14_tests_are_collected_for_every_kind_of_source() -> None:
    found = collected()

    assert {kind: found[kind] > 0 for kind in kinds_of_sources()} == {
        "Files": True,
        "Kinesis": True,
    }


def test_t14_the_suite_of_sources_lies_where_the_default_command_looks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]

    assert settings["testpaths"] == ["tests"]
    assert not settings.keys() & {"norecursedirs", "python_files", "collect_ignore"}
