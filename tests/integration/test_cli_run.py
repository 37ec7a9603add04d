"""Runs in the foreground on real Spark, with concurrent statements."""

import json
import os
import pty
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.error_values import assert_names
from tests.integration.command import (
    COMMAND,
    SETTINGS,
    CommandResult,
    Running,
    Shell,
    wait_until,
)
from tests.node import CREATE_TABLE, Node, create_job, numbered, read_table, write_rows

pytestmark = pytest.mark.integration


# The wait before the last attempt is longer than the pause between two lines.
ATTEMPT = "; attempt [234] of 4: Spark on "


def new_shell(folder: Path) -> Shell:
    """Return a shell with a table and a home that starts Spark quickly."""
    home = folder / "penstock-home"
    home.mkdir()
    (home / "penstock.toml").write_text(SETTINGS)
    shell = Shell(folder)
    given(shell, f"{CREATE_TABLE} LOCATION '{folder}/t'")
    return shell


def given(shell: Shell, statements: str) -> None:
    """Run statements that prepare a test in this process."""
    node = Node(shell.folder / "penstock-home")
    node.sql(statements)
    node.catalog.close()


def ids(shell: Shell) -> list[int]:
    """Return the ids in the table, read by deltalake."""
    return sorted(row["id"] for row in read_table(str(shell.folder / "t")))


def job_row(shell: Shell, name: str = "j") -> dict[str, object]:
    (jobs,) = shell.sql("SHOW JOBS", "--format", "json").json
    return next(job for job in jobs if job["name"] == name)


def logs_of(shell: Shell) -> Path:
    return shell.folder / "penstock-home" / "logs"


def events_of(log: Path) -> list[dict[str, object]]:
    """Return the events of a log, one for each line."""
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return new_shell(tmp_path)


class Three:
    """The result of a run of three jobs: one loads, one is paused, one fails."""

    def __init__(self, folder: Path) -> None:
        self.shell = new_shell(folder)
        write_rows(folder / "good" / "a.json", numbered(1, 2))
        write_rows(folder / "good" / "b.json", numbered(3))
        write_rows(folder / "bad" / "a.json", numbered(8))
        for name in ("good", "bad"):
            given(self.shell, create_job(folder / name, name=name))
        given(self.shell, f"{create_job(folder / 'good', name='held')}; PAUSE JOB held")
        (folder / "bad" / "b.json").write_text("null\n")
        self.result: CommandResult = self.shell.run(
            "run", "--until-caught-up", "--timeout", "2m"
        )


# Run the three jobs once, and not once per worker.
on_one_worker = pytest.mark.xdist_group("three jobs")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Three:
    return Three(tmp_path_factory.mktemp("three"))


@on_one_worker
def test_a_run_with_a_failed_job_exits_with_one_and_prints_the_reason(
    three: Three,
) -> None:
    path = three.shell.folder / "bad" / "b.json"

    assert three.result.code == 1
    assert "error TOO_MANY_FAILURE_ROWS_ERR: " in three.result.error
    assert_names(three.result.error, "job bad", f'"{path}"', "line 1")


@on_one_worker
def test_a_run_names_and_skips_a_job_that_a_user_paused(three: Three) -> None:
    (line,) = [line for line in three.result.error.splitlines() if "job held" in line]
    assert_names(line, "paused")
    assert job_row(three.shell, "held")["rows_loaded"] == 0


@on_one_worker
def test_a_run_loads_the_other_jobs_and_prints_a_summary(three: Three) -> None:
    summary = {line.split(":")[0]: line for line in three.result.out.splitlines()[-3:]}

    assert ids(three.shell) == [1, 2, 3]
    assert summary["good"].count("2 files, 3 rows") == 2
    assert_names(summary["bad"], "paused", "0 files, 0 rows")


@on_one_worker
def test_a_failed_run_prints_the_path_of_its_log(three: Three) -> None:
    (line,) = [line for line in three.result.error.splitlines() if line.startswith("log: ")]
    log = Path(line.removeprefix("log: "))

    events = {str(event["event"]): event for event in events_of(log)}

    assert log.parent == logs_of(three.shell)
    assert events["run started"]["jobs"] == ["bad", "good", "held"]
    assert events["job paused"]["job"] == "bad"
    assert events["job paused"]["code"] == "TOO_MANY_FAILURE_ROWS_ERR"
    assert events["run ended"]["code"] == 1
    assert "epoch committed" not in events


@on_one_worker
def test_spark_writes_its_own_log_next_to_the_log_of_the_run(three: Three) -> None:
    (spark,) = logs_of(three.shell).glob("run-*-spark.log")

    assert "WARN" in spark.read_text()
    assert spark.with_name(spark.name.replace("-spark", "")).exists()
    assert [line for line in three.result.error.splitlines() if foreign(line)] == []
    assert [line for line in three.result.out.splitlines() if foreign(line)] == []


def foreign(line: str) -> bool:
    """Return whether a line seems to come from Spark, its JVM or py4j."""
    return re.search(r"WARN|ERROR|Traceback|\tat |py4j|log4j|Setting default", line) is not None


@on_one_worker
def test_plain_lines_are_printed_at_most_once_a_second(three: Three) -> None:
    stamps = re.findall(r"^(\d\d:\d\d:\d\d)Z ", three.result.out, re.MULTILINE)

    assert stamps
    assert Counter(stamps).most_common(1)[0][1] == 1


@on_one_worker
def test_a_run_of_one_job_does_not_wait_for_the_others(three: Three) -> None:
    result = three.shell.run("run", "--until-caught-up", "--job", "good")

    assert (result.code, result.error) == (0, "")
    assert "bad" not in result.out


@on_one_worker
def test_a_run_without_new_files_does_not_start_spark(three: Three) -> None:
    result = three.shell.run("run", "--until-caught-up", "--job", "good")

    latest = logs_of(three.shell) / "latest.log"
    assert result.code == 0
    assert latest.exists()
    assert not latest.resolve().with_name(f"{latest.resolve().stem}-spark.log").exists()


def test_a_run_that_times_out_exits_with_one_and_prints_the_files_left(
    shell: Shell, tmp_path: Path
) -> None:
    for number in range(1_000):
        write_rows(tmp_path / "in" / f"{number:03}.json", numbered(number))
    one_by_one = [("s3.max_batch_files", "1")]
    given(shell, create_job(tmp_path / "in", properties=one_by_one))

    result = shell.run("run", "--until-caught-up", "--timeout", "15s")

    message = (
        r"error TIMEOUT_ERR: job j is not caught up after 15 s; (\d+) files left\n"
        rf"log: {logs_of(shell)}/run-\S+\.log\n"
    )
    found = re.fullmatch(message, result.error)
    assert result.code == 1
    assert found is not None, result.error
    assert 0 < int(found[1]) <= 1_000
    assert ids(shell) == list(range(len(ids(shell))))
    assert job_row(shell)["state"] == "PENDING"


def test_verbose_prints_a_line_for_every_epoch(shell: Shell, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1, 2))
    given(shell, create_job(tmp_path / "in"))

    result = shell.run("run", "--until-caught-up", "--verbose")

    assert result.code == 0
    assert re.search(
        r"^\d\d:\d\d:\d\dZ info    job taken over  .*job=j$", result.error, re.MULTILINE
    )
    (epoch,) = [line for line in result.error.splitlines() if "epoch committed" in line]
    assert " debug   epoch committed  epoch=1 rows=2 files=1 " in epoch
    logged = [event["event"] for event in events_of(logs_of(shell) / "latest.log")]
    assert logged == ["run started", "job taken over", "epoch committed", "run ended"]


@pytest.mark.parametrize(
    "broken",
    [
        {"PENSTOCK_SPARK__MASTER": "local[many]"},
        {"PENSTOCK_SPARK__CONF": '{"spark.driver.memory": "1m"}'},
    ],
)
def test_a_failed_start_of_spark_prints_no_text_of_spark(
    shell: Shell, tmp_path: Path, broken: dict[str, str]
) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    given(shell, create_job(tmp_path / "in"))
    shell.environment |= broken
    running = shell.start("run")

    wait_until(lambda: bool(re.search(ATTEMPT, running.out.read_text())))
    running.interrupt()

    result = running.wait()
    (spark,) = logs_of(shell).glob("run-*-spark.log")
    assert result.code == 130
    assert [line for line in (result.out + result.error).splitlines() if foreign(line)] == []
    assert spark.stat().st_size > 0


@on_one_worker
def test_a_failed_task_prints_no_text_of_spark(three: Three) -> None:
    result = three.result

    assert result.code == 1
    assert [line for line in (result.out + result.error).splitlines() if foreign(line)] == []


@pytest.fixture
def running(shell: Shell, tmp_path: Path) -> Iterator[Running]:
    """An endless run that has loaded its first file."""
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    given(shell, create_job(tmp_path / "in", properties=[("max_interval", "1s")]))
    started = shell.start("run")
    try:
        wait_until(lambda: ids(shell) == [1])
        yield started
    finally:
        started.end()


def test_statements_control_a_run_and_ctrl_c_ends_it_with_a_summary(
    shell: Shell, running: Running, tmp_path: Path
) -> None:
    runs = job_row(shell)
    paused = shell.sql("PAUSE JOB j")
    write_rows(tmp_path / "in" / "b.json", numbered(2))
    altered = shell.sql("ALTER JOB j PROPERTIES('max_interval' = '2s')")
    while_paused = (job_row(shell)["state"], ids(shell))

    resumed = shell.sql("RESUME JOB j")

    wait_until(lambda: ids(shell) == [1, 2])
    assert (runs["state"], runs["rows_loaded"]) == ("RUNNING", 1)
    assert [each.code for each in (paused, altered, resumed)] == [0, 0, 0]
    assert while_paused == ("PAUSED", [1])
    assert running.process.poll() is None
    wait_until(lambda: job_row(shell)["position"] == str(tmp_path / "in" / "b.json"))

    running.interrupt()

    result = running.wait()
    assert result.code == 130
    assert_names(result.error, "Ctrl-C")
    assert_names(result.out.splitlines()[-1], "2 files, 2 rows")
    assert job_row(shell)["state"] == "PENDING"
    (epochs,) = shell.sql("SHOW EPOCHS FOR j", "--format", "json").json
    outcomes = [row["outcome"] for row in epochs if row["kind"] == "epoch"]
    # The pause may have cancelled an attempt; each file was committed once.
    assert outcomes.count("COMMITTED") == 2


def test_a_second_ctrl_c_ends_a_run_at_once(shell: Shell, running: Running) -> None:
    running.interrupt()
    wait_until(lambda: "stopping" in running.error.read_text())
    running.interrupt()

    result = running.wait()

    assert result.code == 130
    assert ids(shell) == [1]


def test_a_terminal_shows_a_progress_table_and_then_the_summary(
    shell: Shell, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    given(shell, create_job(tmp_path / "in"))
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "run", "--until-caught-up"],
        cwd=tmp_path,
        stdout=follower,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
    )
    os.close(follower)

    text = read_all(leader)

    assert process.wait() == 0
    headings = ("state", "step", "files left", "rows left", "rows/s")
    assert [heading for heading in headings if heading not in text] == []
    assert "j: caught up; loaded 1 file, 1 row in this run" in text
    assert ids(shell) == [1]


def read_all(descriptor: int) -> str:
    """Read a terminal until the last writer has closed it."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
