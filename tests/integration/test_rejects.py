"""Rows that cannot be loaded are stored in rejects(), or they abort their epoch."""

from pathlib import Path
from typing import Any

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from tests.error_values import assert_names, assert_reason
from tests.integration.driving import crash_at
from tests.node import Node, create_job, write_rows

ON_BUCKETS_TOO = True

LENIENT = ("session.enable_insert_strict", "false")
TABLE = "CREATE TABLE t (id INT NOT NULL, note STRING)"
BAD = '{"id": 1, "note": "a"}\nnull\n\n{"id": 3000000000, "note": "b"}\n{"note": "c"}\n'


def rejected(node: Node) -> list[dict[str, Any]]:
    assert node.tables is not None
    rows = node.read(node.tables.rejects_location(node.job("j").id))
    return sorted(rows, key=lambda row: (row["file"], row["line"]))


def test_t9_rejected_rows_are_counted_and_stored_in_the_same_epoch(
    node: Node, folder: Path
) -> None:
    (folder / "a.json").write_text(BAD)
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")

    node.run()

    state = node.restart().job("j")
    counted = state.cumulative
    assert node.rows("t") == [{"id": 1, "note": "a"}]
    assert (counted.rows_read, counted.rows_rejected, counted.rows_misfit) == (5, 3, 2)
    rejects = rejected(node)
    assert [(row["line"], row["stage"]) for row in rejects] == [
        (2, "reader"),
        (4, "writer"),
        (5, "writer"),
    ]
    assert_names(rejects[0]["error"], '"{"', '"null"')
    assert_names(rejects[1]["error"], '"id"', "INT", "3000000000")
    assert_names(rejects[2]["error"], '"id"', "INT", "NULL")
    assert {(row["file"], row["epoch"], row["commit_number"]) for row in rejected(node)} == {
        (node.name_of(folder / "a.json"), 1, state.number)
    }
    assert rejected(node)[0]["raw"] == b"null"
    assert rejected(node)[1]["raw"] == b'{"id": 3000000000, "note": "b"}'


@pytest.mark.parametrize(("ratio", "loads"), [("0.74", False), ("0.75", True)])
def test_an_epoch_with_too_many_rejects_loads_no_row(
    node: Node, folder: Path, *, ratio: str, loads: bool
) -> None:
    (folder / "a.json").write_text(BAD)
    limit = ("session.insert_max_filter_ratio", ratio)
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT, limit])}")

    node.run()

    shown = node.show("j")
    assert len(node.rows("t")) == (1 if loads else 0)
    assert (shown["state"] == "PAUSED") == (not loads)
    if not loads:
        named = ("3", "4", "0.74", f'"{folder}/a.json"', "line 2")
        assert_reason(shown["reason"], Code.TOO_MANY_FAILURE_ROWS_ERR, *named)
        assert node.job("j").cumulative.rows_rejected == 0


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.TABLE_COMMITTED,
        CrashPoint.CATALOG_APPLIED,
        CrashPoint.COPY_WRITTEN,
        CrashPoint.REJECTS_COMMITTED,
    ],
)
def test_rejects_appear_once_after_a_crash(node: Node, folder: Path, point: CrashPoint) -> None:
    (folder / "a.json").write_text(BAD)
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")
    crash_at(node, point)

    node = node.restart()
    node.run()

    assert len(node.rows("t")) == 1
    assert [row["line"] for row in rejected(node)] == [2, 4, 5]


def test_dropping_a_job_removes_its_rejects(node: Node, folder: Path) -> None:
    (folder / "a.json").write_text(BAD)
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")
    node.run()
    assert node.tables is not None
    location = node.tables.rejects_location(node.job("j").id)
    assert node.exists(location)

    node.sql("DROP JOB j")

    assert not node.exists(location)


def test_lines_of_a_later_range_are_numbered_from_the_start_of_the_file(
    node: Node, folder: Path
) -> None:
    rows = [f'{{"id": {number}, "note": "{"x" * 1000}"}}\n' for number in range(12_000)]
    rows[11_000] = "null\n"
    (folder / "a.json").write_text("".join(rows))
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")

    node.run()

    assert [row["line"] for row in rejected(node)] == [11_001]
    assert node.job("j").cumulative.rows_loaded == 11_999


def test_a_job_without_bad_rows_creates_no_rejects_table(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", [{"id": 1, "note": "a"}])
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")

    node.run()

    assert node.tables is not None
    assert not node.exists(node.tables.rejects_location(node.job("j").id))
