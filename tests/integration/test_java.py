"""Spark runs on the machine's Java, or on the Java from PyPI if the machine has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.java import java_home
from tests.node import CREATE_TABLE, create_job, numbered, write_rows

PENSTOCK = Path(sys.executable).parent / "penstock"


def fake_java(folder: Path, *, version: str) -> Path:
    """Create a Java home whose java prints the given version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_in_java_home_is_used_if_it_is_new_enough(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version=version)

    found = java_home(scratch=tmp_path, environment={"JAVA_HOME": str(home), "PATH": ""})

    assert found == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_not_used(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version=version)

    found = java_home(scratch=tmp_path, environment={"JAVA_HOME": str(home), "PATH": ""})

    assert found == tmp_path / "java"


def test_the_java_from_pypi_starts_without_its_missing_module(tmp_path: Path) -> None:
    home = java_home(scratch=tmp_path, environment={"PATH": ""})

    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert "version" in result.stderr


@pytest.mark.integration
def test_a_job_runs_on_a_machine_without_java(tmp_path: Path, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1, 2, 3))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "env",
        "dirname",
        "basename",
        "uname",
        "ps",
        "grep",
        "cat",
        "ls",
    ):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "PENSTOCK_HOME": str(tmp_path / "home")}

    script = f"{CREATE_TABLE}; {create_job(folder)}"
    subprocess.run([PENSTOCK, "sql", "-e", script], env=environment, check=True)
    command = [str(PENSTOCK), "run", "--until-caught-up", "--timeout", "120s"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 rows" in ran.stdout
    assert (tmp_path / "home" / "tmp" / "java" / "bin" / "java").exists()
