"""penstock doctor on intact and on broken homes."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.doctor.examine import open_subject
from penstock.cli.doctor.home import check_clock
from penstock.cli.doctor.report import Outcome
from tests.error_values import assert_names
from tests.integration.command import SETTINGS, Shell
from tests.integration.driving import MovedClock
from tests.node import CREATE_TABLE, create_job, numbered, write_rows


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def home(shell: Shell, tmp_path: Path) -> Path:
    """A home with a table and a job that does not run."""
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")
    return tmp_path / "penstock-home"


def report(shell: Shell) -> dict[str, dict[str, Any]]:
    """Return the findings of a quick check, by name of the check."""
    result = shell.run("doctor", "--quick", "--format", "json")
    return {row["check"]: row for row in json.loads(result.out)}


def test_an_intact_home_has_no_problems(shell: Shell, home: Path) -> None:
    result = shell.run("doctor", "--quick")

    assert (result.code, result.error) == (0, "")
    assert result.out.splitlines()[-1] == "no problems"
    assert_names(result.out, f"{home}/catalog.db", "1 job", "1 table", "penstock run")


def test_doctor_does_not_create_a_missing_home(shell: Shell, tmp_path: Path) -> None:
    result = shell.run("--home", "nowhere", "doctor", "--quick")

    assert result.code == 0
    assert_names(result.out, "nowhere", "penstock init")
    assert list(tmp_path.iterdir()) == []


def test_doctor_does_not_create_a_missing_catalog(shell: Shell, tmp_path: Path) -> None:
    shell.run("init")

    found = report(shell)

    assert found["catalog"]["found"] == "none yet"
    assert [p.name for p in (tmp_path / "penstock-home").iterdir()] == ["penstock.toml"]


@pytest.mark.integration
def test_doctor_starts_spark(shell: Shell, home: Path) -> None:
    (home / "penstock.toml").write_text(SETTINGS)

    result = shell.run("doctor")

    assert (result.code, result.error) == (0, "")
    assert_names(result.out, "local[2,4]", "task")
    assert list((home / "logs").glob("*")) == []


@pytest.mark.integration
def test_a_failed_start_of_spark_is_a_problem_that_names_the_log(
    shell: Shell, home: Path
) -> None:
    shell.environment["PENSTOCK_SPARK__MASTER"] = "local[many]"

    result = shell.run("doctor")

    (log,) = (home / "logs").glob("doctor-*-spark.log")
    assert (result.code, result.error) == (1, "")
    assert_names(result.out, "problem spark", '"local[many]"', log)


def test_a_wrong_setting_is_a_problem_and_the_other_checks_run(
    shell: Shell, home: Path
) -> None:
    (home / "penstock.toml").write_text("warehose = 'x'")

    result = shell.run("doctor", "--quick")

    assert result.code == 1
    assert_names(result.out, "problem settings", '"warehose"', "1 job", "1 table")


def test_settings_are_listed_with_their_origin_and_without_spark_values(
    shell: Shell, home: Path
) -> None:
    (home / "penstock.toml").write_text("spark.conf.'spark.secret.key' = 'hidden'")
    shell.environment["PENSTOCK_SPARK__MASTER"] = "local[1,4]"

    settings = report(shell)["settings"]["found"]

    assert_names(settings, "spark.master = local[1,4]", "PENSTOCK_SPARK__MASTER")
    assert_names(settings, "spark.conf (spark.secret.key)", "penstock.toml")
    assert "hidden" not in settings


def change_catalog(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "catalog.db")) as connection, connection:
        connection.execute(statement)


def test_an_older_catalog_is_a_warning_and_is_not_upgraded(shell: Shell, home: Path) -> None:
    change_catalog(home, "UPDATE alembic_version SET version_num = '0000'")

    first, second = report(shell)["catalog"], report(shell)["catalog"]

    assert first == second
    assert first["outcome"] == "warning"
    assert_names(first["found"], "0000")


def test_a_newer_catalog_is_a_problem(shell: Shell, home: Path) -> None:
    change_catalog(home, "UPDATE alembic_version SET version_num = '9999'")

    found = report(shell)["catalog"]

    assert found["outcome"] == "problem"
    assert found["next"]


def test_a_file_that_is_not_a_catalog_is_a_problem_and_is_kept(
    shell: Shell, home: Path
) -> None:
    (home / "catalog.db").write_text("these are my notes, not a database; " * 100)

    found = report(shell)["catalog"]

    assert found["outcome"] == "problem"
    assert "not a database" in found["found"]
    assert (home / "catalog.db").read_text().startswith("these are my notes")


def test_a_warehouse_below_a_file_is_a_problem(shell: Shell, home: Path) -> None:
    shell.environment["PENSTOCK_WAREHOUSE"] = str(home / "catalog.db" / "lake")

    found = report(shell)["warehouse"]

    assert found["outcome"] == "problem"
    assert_names(found["found"], f"{home}/catalog.db/lake")


def test_a_key_that_other_users_can_read_is_a_problem(shell: Shell, home: Path) -> None:
    (home / "secret.key").write_text("0123456789abcdef")
    (home / "secret.key").chmod(0o644)

    found = report(shell)["secrets"]

    assert found["outcome"] == "problem"
    assert_names(found["next"], f'chmod 600 "{home}/secret.key"')


@pytest.mark.usefixtures("home")
def test_a_job_paused_by_a_user_is_reported_with_the_statement_that_resumes_it(
    shell: Shell,
) -> None:
    shell.sql("PAUSE JOB j")

    found = report(shell)["job"]

    assert found["outcome"] == "warning"
    assert_names(found["found"], "j", "paused")
    assert_names(found["next"], "penstock sql -e 'RESUME JOB j'")


def test_a_clock_before_the_newest_event_is_a_problem(home: Path) -> None:
    subject = open_subject(home, quick=True)
    assert subject.app is not None
    early = MovedClock()
    early.move(hours=-2)

    (fine,) = check_clock(subject)
    (late,) = check_clock(replace(subject, clock=early))

    subject.app.close()
    assert fine.outcome is Outcome.OK
    assert late.outcome is Outcome.PROBLEM
    assert late.found.endswith(" earlier than the newest event in the catalog")
