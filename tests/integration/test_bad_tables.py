"""Tables that disappear, change or are replaced: a clear error, and no lost rows."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import Code, UserError
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.error_values import assert_reason, raises
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    idle,
    pause_reason,
    paused,
    rounds_until,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, read_table, write_rows

OTHER_ROWS = pa.table({"id": pa.array([9], pa.int64()), "note": pa.array(["row 9"])})


@pytest.fixture
def loaded(node: Node, folder: Path) -> Node:
    """A node whose job has loaded one file, with a second file waiting."""
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "b.json", numbered(2))
    return node


def location(node: Node) -> Path:
    record = node.catalog.table("t")
    assert record is not None
    return Path(record.location)


def recreate(path: Path) -> None:
    """Replace a table by another table with the same columns."""
    shutil.rmtree(path)
    write_deltalake(str(path), OTHER_ROWS)


def move_away(path: Path) -> None:
    path.rename(path.with_name("away"))


def remove_columns(path: Path) -> None:
    narrower = pa.table({"other": pa.array([9], pa.int64())})
    write_deltalake(str(path), narrower, mode="overwrite", schema_mode="overwrite")


STATEMENTS = ["RESUME JOB j", "PAUSE JOB j", "ALTER JOB j PROPERTIES('max_interval' = '3s')"]
# How the table changes, the values in the reason, and the rows of the table afterwards.
CHANGES: dict[str, tuple[Callable[[Path], None], tuple[str, ...], list[dict[str, Any]]]] = {
    "a table without its folder": (move_away, ("<path>",), []),
    "a table that was replaced": (recreate, ('"t"', "<id>"), numbered(9)),
    "a table without its columns": (
        remove_columns,
        ('"t"', '"id"', "id, note"),
        [{"other": 9}],
    ),
}


@pytest.mark.parametrize(("change", "names", "rows"), CHANGES.values(), ids=CHANGES)
def test_a_changed_table_pauses_the_job_permanently_with_a_reason(
    loaded: Node,
    folder: Path,
    *,
    change: Callable[[Path], None],
    names: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    path = location(loaded)
    change(path)

    (report,) = loaded.run()

    assert report.needs_resume
    value_by_name = {"<path>": f'"{path}"', "<id>": report.state.definition.table.id}
    named = [value_by_name.get(name, name) for name in names]
    assert_reason(loaded.show("j")["reason"], Code.TABLE_CHANGED_ERR, *named)
    assert (loaded.rows("t") if path.exists() else []) == rows
    assert loaded.show("j")["position"] == str(folder / "a.json")


def test_a_restored_table_is_loaded_again_after_resume(loaded: Node, folder: Path) -> None:
    path = location(loaded)
    move_away(path)
    loaded.run()
    path.with_name("away").rename(path)

    loaded.sql("RESUME JOB j")
    loaded.run()

    assert loaded.rows("t") == numbered(1, 2)
    assert loaded.show("j")["rows_loaded"] == 2
    assert loaded.show("j")["position"] == str(folder / "b.json")


@pytest.mark.parametrize("remove", [shutil.rmtree, recreate])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_about_a_job_with_a_missing_table_are_refused(
    loaded: Node, remove: Callable[[Path], None], statement: str
) -> None:
    remove(location(loaded))
    loaded.run()

    with raises(UserError, Code.TABLE_CHANGED_ERR, location(loaded), hint=()):
        loaded.sql(statement)

    assert loaded.show("j")["state"] == "PAUSED"


@pytest.mark.parametrize("remove", [shutil.rmtree, recreate])
def test_a_job_with_a_missing_table_can_be_dropped_and_created_again(
    loaded: Node, folder: Path, remove: Callable[[Path], None]
) -> None:
    remove(location(loaded))
    loaded.run()

    loaded.sql(f"DROP JOB j; DROP TABLE t; {CREATE_TABLE}; {create_job(folder)}")
    loaded.run()

    assert loaded.rows("t") == numbered(1, 2)
    assert loaded.show("j")["position"] == str(folder / "b.json")


def wait_for_pause(supervisor: Supervisor, clock: MovedClock) -> RunnerReport:
    """Wait until the runner has ended and its successor has paused the job."""
    rounds_until(supervisor, lambda reports: reports[0].last_exit is not None)
    clock.move(seconds=2)
    (report,) = rounds_until(supervisor, paused)
    return report


@pytest.mark.parametrize("remove", [shutil.rmtree, recreate])
def test_a_table_deleted_while_the_job_is_idle_pauses_the_job(
    open_node: OpenNode, folder: Path, remove: Callable[[Path], None]
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        remove(location(node))
        report = wait_for_pause(supervisor, clock)

    assert report.needs_resume
    assert_reason(node.show("j")["reason"], Code.TABLE_CHANGED_ERR)
    assert node.show("j")["position"] == str(folder / "a.json")


@pytest.mark.parametrize("remove", [shutil.rmtree, recreate])
def test_a_table_deleted_during_an_epoch_receives_no_row(
    open_node: OpenNode, folder: Path, remove: Callable[[Path], None]
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.work = Failing(first=lambda: remove(location(node)))

    with supervised(node) as supervisor:
        report = wait_for_pause(supervisor, clock)

    assert report.state.cumulative.rows_loaded == 0
    assert report.needs_resume
    assert_reason(node.show("j")["reason"], Code.TABLE_CHANGED_ERR)


@pytest.fixture
def restored(loaded: Node, tmp_path: Path) -> Node:
    """A node whose table was copied, loaded again, and replaced by the copy."""
    path = location(loaded)
    shutil.copytree(path, tmp_path / "copy")
    loaded.run()
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    return loaded


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_table_restored_from_a_copy_pauses_the_job_permanently(
    restored: Node, folder: Path, statement: str
) -> None:
    write_rows(folder / "c.json", numbered(3))

    (report,) = restored.run()

    assert report.needs_resume
    assert_reason(restored.show("j")["reason"], Code.TABLE_CHANGED_ERR, '"t"', "3", "5")
    with raises(UserError, Code.TABLE_CHANGED_ERR, '"t"', "3", "5"):
        restored.sql(statement)
    restored.run()
    assert restored.show("j")["state"] == "PAUSED"
    assert restored.rows("t") == numbered(1)


def test_a_new_job_on_a_restored_table_continues_from_the_positions_in_the_table(
    restored: Node, folder: Path
) -> None:
    restored.run()
    offset = ("offset", f'{{"fileName": "{folder}/a.json"}}')

    restored.sql(f"DROP JOB j; {create_job(folder, properties=[offset])}")
    restored.run()

    assert restored.rows("t") == numbered(1, 2)
    assert restored.show("j")["position"] == str(folder / "b.json")


def test_rows_that_a_user_deleted_are_not_loaded_again(loaded: Node, folder: Path) -> None:
    table = DeltaTable(str(location(loaded)))
    before = table.version()
    loaded.run()
    DeltaTable(table.table_uri).restore(before)
    write_rows(folder / "c.json", numbered(3))

    loaded.run()

    assert loaded.rows("t") == numbered(1, 3)
    assert loaded.show("j")["rows_loaded"] == 3
    assert loaded.show("j")["position"] == str(folder / "c.json")


def test_rows_of_another_writer_are_kept(loaded: Node) -> None:
    write_deltalake(str(location(loaded)), OTHER_ROWS, mode="append")

    loaded.run()

    assert loaded.rows("t") == numbered(1, 2, 9)
    assert loaded.show("j")["rows_loaded"] == 2


def test_an_added_column_is_filled_with_null(loaded: Node) -> None:
    wider = OTHER_ROWS.append_column("more", pa.array([1], pa.int64()))
    write_deltalake(str(location(loaded)), wider, mode="append", schema_mode="merge")

    loaded.run()

    more_by_id = {row["id"]: row["more"] for row in loaded.rows("t")}
    assert more_by_id == {1: None, 2: None, 9: 1}


def test_an_epoch_is_retried_when_columns_change_during_it(
    open_node: OpenNode, folder: Path
) -> None:
    node = open_node(clock=MovedClock())
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    wider = OTHER_ROWS.append_column("more", pa.array([1], pa.int64()))
    node.work = Failing(
        first=lambda: write_deltalake(
            str(location(node)), wider, mode="append", schema_mode="merge"
        )
    )

    node.run()

    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    failed = node.sql("SHOW EPOCHS FOR j")[-2]
    assert_reason(failed["reason"], Code.TABLE_ERR, "columns", '"t"')
    assert {row["id"]: row["more"] for row in node.rows("t")} == {1: None, 9: 1}


def test_a_table_is_dropped_with_its_files_once_no_job_loads_it(loaded: Node) -> None:
    path = location(loaded)

    loaded.sql("DROP JOB j; DROP TABLE t")

    assert not path.exists()
    assert loaded.sql("SHOW TABLES") == []


def test_dropping_a_table_with_a_location_keeps_its_files(
    node: Node, folder: Path, tmp_path: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    place = tmp_path / "given"
    node.sql(f"{CREATE_TABLE} LOCATION '{place}'; {create_job(folder)}")
    node.run()

    node.sql("DROP JOB j; DROP TABLE t")

    assert read_table(str(place)) == numbered(1)


def test_an_unreadable_log_pauses_the_job_until_it_is_repaired(
    open_node: OpenNode, folder: Path
) -> None:
    node = open_node(clock=MovedClock())
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    entry = max((location(node) / "_delta_log").glob("*.json"))
    content = entry.read_bytes()
    entry.write_bytes(b"not JSON")

    reason = pause_reason(node)

    entry.write_bytes(content)
    node.sql("RESUME JOB j")
    node.run()

    assert_reason(reason, Code.STORAGE_ERR, f'"{location(node)}"')
    assert "\n" not in reason
    assert node.rows("t") == numbered(1)
