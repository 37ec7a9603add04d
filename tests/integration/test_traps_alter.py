"""Traps of ALTER: everything or nothing, once, durably, and refused when it changes nothing."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from tests.integration.driving import MovedClock, crash_inside, idle, rounds_until, supervised
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]


@pytest.fixture
def paused(node: Node, folder: Path) -> Node:
    """A node whose job has loaded three files and was paused."""
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE)}")
    node.run()
    node.sql("PAUSE JOB j")
    return node


def alter(properties: str) -> str:
    return f"ALTER JOB j PROPERTIES({properties})"


def alter_offset(path: Path | str) -> str:
    return alter(f"""'offset' = '{{"fileName": "{path}"}}'""")


def table_version(node: Node) -> Cell:
    return node.sql("DESCRIBE DETAIL t")[0]["version"]


def test_t3_an_altered_position_survives_a_restart_without_a_run(
    paused: Node, folder: Path
) -> None:
    paused.sql(alter_offset(folder / "b.json"))
    before = paused.show("j")

    node = paused.restart()

    assert node.show("j") == before
    assert before["position"] == str(folder / "b.json")


def test_t3_a_job_altered_back_loads_the_later_files_again_and_counts_on(
    paused: Node, folder: Path
) -> None:
    paused.sql(alter_offset(folder / "b.json"))
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    assert node.rows("t") == numbered(0, 1, 2, 2)
    assert node.show("j")["rows_loaded"] == 4
    assert node.show("j")["files_loaded"] == 4
    assert node.show("j")["position"] == str(folder / "c.json")


def test_t3_a_job_altered_forward_loads_only_later_files(paused: Node, folder: Path) -> None:
    for number, name in enumerate("de", start=3):
        write_rows(folder / f"{name}.json", numbered(number))
    paused.sql(alter_offset(folder / "d.json"))
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    assert node.rows("t") == numbered(0, 1, 2, 4)
    assert node.show("j")["position"] == str(folder / "e.json")


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.DESIRED_STATE_STORED,
        CrashPoint.STATEMENT_COMMITTED,
        CrashPoint.STATEMENT_APPLIED,
    ],
)
def test_t3_an_alter_that_died_anywhere_moved_the_position_or_did_not(
    paused: Node, folder: Path, point: CrashPoint
) -> None:
    crash_inside(paused, alter_offset(folder / "b.json"), point)
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    moved = point is not CrashPoint.DESIRED_STATE_STORED
    assert node.rows("t") == (numbered(0, 1, 2, 2) if moved else numbered(0, 1, 2))
    assert node.show("j")["rows_loaded"] == (4 if moved else 3)
    assert node.show("j")["position"] == str(folder / "c.json")


def test_t32_a_good_key_beside_a_bad_one_changes_nothing(paused: Node, folder: Path) -> None:
    before, version = to_text(paused.job("j")), table_version(paused)
    good = f"""'max_interval' = '3s', 'offset' = '{{"fileName": "{folder}/a.json"}}'"""

    with pytest.raises(UserError, match=r'"s3.max_batch_files" must be at least 1, not 0'):
        paused.sql(alter(f"{good}, 's3.max_batch_files' = '0'"))

    assert to_text(paused.job("j")) == before
    assert table_version(paused) == version
    assert paused.show("j")["position"] == str(folder / "c.json")


def test_t35_altered_properties_survive_a_restart_and_stand_in_show_create(
    paused: Node, folder: Path
) -> None:
    paused.sql(alter("'max_interval' = '3s', 's3.max_batch_files' = '2', '__team' = 'sales'"))
    before = paused.job("j").definition
    paused.catalog.truncate_events(paused.job("j").id, keep=0)

    node = paused.restart()

    assert node.job("j").definition == before
    text = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
    assert "'max_interval' = '3s'" in text
    assert "'s3.max_batch_files' = '2'" in text
    assert "'__team' = 'sales'" in text
    assert node.show("j")["position"] == str(folder / "c.json")


def test_t35_altered_properties_rule_the_epochs_after_a_restart(
    paused: Node, folder: Path
) -> None:
    paused.sql(alter("'s3.max_batch_files' = '2'"))
    for number, name in enumerate("def", start=3):
        write_rows(folder / f"{name}.json", numbered(number))
    node = paused.restart()
    node.sql("RESUME JOB j")

    node.run()

    files = [row["files"] for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    assert files == [1, 1, 1, 2, 1]
    assert node.show("j")["position"] == str(folder / "f.json")


def test_t35_a_key_that_alter_does_not_name_stays_as_it_is(paused: Node, folder: Path) -> None:
    paused.sql(alter("'max_interval' = '3s'"))

    altered = paused.job("j").definition.properties

    assert altered.max_interval == timedelta(seconds=3)
    assert altered.limits.items == 1
    assert paused.show("j")["position"] == str(folder / "c.json")


def test_t40_an_altered_interval_rules_the_next_look_after_a_restart(
    open_node: OpenNode, folder: Path
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}; PAUSE JOB j")
    node.sql(alter("'max_interval' = '3s'") + "; RESUME JOB j")
    node = node.restart()

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: idle(looks) and bool(clock.runner_waits))

    assert clock.runner_waits == {timedelta(seconds=3)}
    assert node.show("j")["position"] == str(folder / "a.json")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("'max_intervall' = '3s'", 'does not know the option "max_intervall"'),
        ("'s3.max_batch_files' = '1'", "changes nothing"),
        ("'max_interval' = '10s'", "changes nothing"),
        ("'uri' = 'file:///elsewhere/'", 'does not know the option "uri"'),
    ],
)
def test_t41_an_alter_that_changes_nothing_is_refused(
    paused: Node, folder: Path, properties: str, message: str
) -> None:
    before, version = to_text(paused.job("j")), table_version(paused)

    with pytest.raises(UserError, match=message) as refused:
        paused.sql(alter(properties))

    assert refused.value.code is Code.OPTION_ERR
    assert to_text(paused.job("j")) == before
    assert table_version(paused) == version
    assert paused.show("j")["position"] == str(folder / "c.json")


def test_t41_an_unknown_key_is_refused_with_the_allowed_set(paused: Node) -> None:
    with pytest.raises(UserError) as refused:
        paused.sql(alter("'max_intervall' = '3s'"))

    assert refused.value.hint == (
        'Did you mean "max_interval"? '
        "Allowed: lookup_max_bytes, max_interval, offset, s3.max_batch_bytes, "
        "s3.max_batch_files, session.enable_insert_strict, session.insert_max_filter_ratio, "
        "session.python_udfs, session.time_zone."
    )


def test_t41_a_job_that_runs_is_not_altered(paused: Node, folder: Path) -> None:
    paused.sql("RESUME JOB j")
    before = to_text(paused.job("j"))

    with pytest.raises(UserError, match='job "j" must be paused before it is altered') as error:
        paused.sql(alter_offset(folder / "a.json"))

    assert error.value.code is Code.STATE_ERR
    assert to_text(paused.job("j")) == before
    assert paused.show("j")["position"] == str(folder / "c.json")
