"""The wheel works in an environment that holds only what pip installs with it."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
LOAD = """
CREATE TABLE readings (id BIGINT NOT NULL);
CREATE ROUTINE LOAD load_readings ON readings
FROM DATAGEN ('rows_total' = '100', 'fields.id.kind' = 'sequence');
"""

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that ``make wheel`` builds."""
    folder = tmp_path_factory.mktemp("wheels")
    # Do not install into the environment of the tests again.
    run("make", "--assume-old", ".venv/.installed", "wheel", f"WHEELS={folder}", folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def run(*command: str | Path, folder: Path) -> str:
    """Return what a command prints; fail with its errors if it fails."""
    hidden = ("PYTHON", "PENSTOCK_", "VIRTUAL_ENV", "MAKE", "MFLAGS", "SPARK_", "JAVA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    ended = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_wheel_holds_the_package_and_its_license_only(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {
        "penstock",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    assert "penstock/catalog/migrations/versions/0004_first.py" in names
    assert "penstock/catalog/migrations/versions/0005_watermarks.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.timeout(600)
def test_an_installed_wheel_loads_rows(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path)
    penstock = python.with_name("penstock")

    examined = run(penstock, "doctor", folder=tmp_path)
    run(penstock, "sql", "-e", LOAD, folder=tmp_path)
    run(penstock, "run", "--until-caught-up", folder=tmp_path)
    query = "SELECT count(DISTINCT id) AS ids, count(*) AS total FROM readings"
    shown = run(penstock, "sql", "--format", "json", "-e", query, folder=tmp_path)

    assert re.search(r"^ok +spark ", examined, re.MULTILINE)
    assert json.loads(shown) == [{"ids": 100, "total": 100}]
    run(python, "-m", "pip", "check", folder=tmp_path)


def installed(wheel: Path, folder: Path) -> Path:
    """Return the Python of a new environment with the wheel in it, at the locked versions."""
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^[\w.-]+==[\w.]+", lock, re.MULTILINE)))
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--no-compile")
    run(*install, "--constraint", constraints, wheel, folder=folder)
    assert run(python, "-c", "import sys; print(*sys.path)", folder=folder).find(sys.prefix) < 0
    return python
