"""Options of a job: late and changed files, offsets, batches, columns."""

from pathlib import Path
from typing import Any

import pytest

from penstock.control.result import Cell
from penstock.errors import Code, ExternalError
from penstock.sources.files import source as files
from tests.error_values import assert_names
from tests.integration.driving import Failing, MovedClock
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]


def epochs(node: Node, column: str) -> list[Cell]:
    """Return a column of SHOW EPOCHS, without other rows."""
    return [row[column] for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]


def offset(path: Path | str) -> tuple[str, str]:
    return ("offset", f'{{"fileName": "{path}"}}')


def test_a_late_file_is_loaded_by_default(node: Node, folder: Path) -> None:
    write_rows(folder / "b.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "a.json", numbered(2))

    node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "b.json")
    assert node.show("j")["files_loaded"] == 2


def test_a_late_file_is_ignored_if_the_option_is_set(node: Node, folder: Path) -> None:
    write_rows(folder / "b.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, late_files='ignore')}")
    node.run()
    write_rows(folder / "a.json", numbered(2))
    write_rows(folder / "c.json", numbered(3))

    node.run()

    assert node.rows("t") == numbered(1, 3)
    assert node.show("j")["position"] == str(folder / "c.json")
    assert node.show("j")["files_loaded"] == 2


def test_a_changed_file_is_not_loaded_again_but_counted(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "a.json", numbered(8, 9))

    node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["files_modified"] == 1
    assert node.restart().show("j")["files_modified"] == 1


def test_a_changed_file_that_is_restored_is_no_longer_counted(node: Node, folder: Path) -> None:
    path = write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    path.rename(folder / "kept")
    write_rows(path, numbered(9))
    node.run()
    (folder / "kept").replace(path)

    node.run()

    assert node.show("j")["files_modified"] == 0
    assert node.rows("t") == numbered(1)


def test_a_changed_file_pauses_the_job_permanently_if_the_option_is_set(
    node: Node, folder: Path
) -> None:
    path = write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, modified_files='fail')}")
    node.run()
    path.rename(folder / "kept")
    write_rows(path, numbered(9))
    write_rows(folder / "b.json", numbered(2))

    (report,) = node.run()

    assert report.needs_resume
    assert report.state.desired.reason is not None
    assert report.state.desired.reason.code is Code.CANNOT_RESUME_ERR
    assert_names(report.state.desired.reason.message, f'"{node.name_of(path)}"', "changed")
    assert node.rows("t") == numbered(1)
    (folder / "kept").replace(path)
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(1, 2)


def test_a_changed_file_loads_again_when_the_offset_is_moved_back(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    path = write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, modified_files='fail')}")
    node.run()
    write_rows(path, numbered(3, 4))
    node.run()

    key, value = offset(folder / "a.json")
    node.sql(f"ALTER JOB j PROPERTIES('{key}' = '{value}'); RESUME JOB j")
    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
    assert node.show("j")["rows_loaded"] == 4
    assert node.show("j")["position"] == str(path)


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_an_offset_at_create_starts_after_the_named_file(
    node: Node, folder: Path, slashes: str
) -> None:
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    start = offset(slashes + str(folder / "a.json").lstrip("/"))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[start])}")
    before = node.show("j")["position"]

    node.run()

    assert before == str(folder / "a.json")
    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "c.json")


@pytest.mark.parametrize("slashes", ["", "/"])
def test_an_offset_at_alter_starts_after_the_named_file(
    node: Node, folder: Path, slashes: str
) -> None:
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()

    key, value = offset(slashes + str(folder / "a.json").lstrip("/"))
    node.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('{key}' = '{value}')")

    assert node.show("j")["position"] == str(folder / "a.json")
    assert node.show("j")["state"] == "PAUSED"
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(0, 1, 1, 2, 2)
    assert node.show("j")["rows_loaded"] == 5
    assert node.show("j")["files_loaded"] == 5


def test_an_offset_can_name_a_file_that_does_not_exist(node: Node, folder: Path) -> None:
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    start = offset(folder / "b")
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[start])}")

    node.run()

    assert node.rows("t") == numbered(1, 2)


def test_a_late_file_before_the_offset_is_never_loaded(node: Node, folder: Path) -> None:
    write_rows(folder / "c.json", numbered(1))
    start = offset(folder / "b.json")
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[start])}")
    node.run()
    write_rows(folder / "a.json", numbered(2))
    write_rows(folder / "bb.json", numbered(3))

    node.run()

    assert node.rows("t") == numbered(1, 3)


def test_an_alter_with_the_same_offset_loads_later_files_again(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    key, value = offset(folder / "a.json")
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[(key, value)])}")
    node.run()

    node.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('{key}' = '{value}'); RESUME JOB j")
    node.run()

    assert node.rows("t") == numbered(2, 2)


def test_an_epoch_loads_at_most_the_configured_number_of_files(
    node: Node, folder: Path
) -> None:
    for number in range(5):
        write_rows(folder / f"{number}.json", numbered(number))
    limit = ("s3.max_batch_files", "2")
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[limit])}")

    node.run()

    assert epochs(node, "files") == [2, 2, 1]
    assert epochs(node, "position") == [str(folder / f"{name}.json") for name in (1, 3, 4)]
    assert node.rows("t") == numbered(0, 1, 2, 3, 4)


def test_the_file_that_exceeds_the_byte_limit_is_part_of_the_epoch(
    node: Node, folder: Path
) -> None:
    sizes = {}
    for number in range(5):
        path = write_rows(folder / f"{number}.json", numbered(number))
        sizes[number] = path.stat().st_size
    limit = ("s3.max_batch_bytes", str(sizes[0] + 1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[limit])}")

    node.run()

    assert epochs(node, "files") == [2, 2, 1]
    assert epochs(node, "bytes") == [sizes[0] + sizes[1], sizes[2] + sizes[3], sizes[4]]


def test_an_epoch_ends_when_the_byte_limit_is_reached_exactly(node: Node, folder: Path) -> None:
    for number in range(3):
        write_rows(folder / f"{number}.json", numbered(number))
    size = (folder / "0.json").stat().st_size
    limit = ("s3.max_batch_bytes", str(size))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[limit])}")

    node.run()

    assert epochs(node, "files") == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        (("max_interval", "5m"), "'max_interval' = '300s'"),
        (("max_interval", "7"), "'max_interval' = '7s'"),
        (("s3.max_batch_bytes", "256MB"), "'s3.max_batch_bytes' = '256MB'"),
        (("__team", "sales"), "'__team' = 'sales'"),
    ],
)
def test_units_are_accepted_and_properties_are_in_show_create(
    node: Node, folder: Path, given: tuple[str, str], printed: str
) -> None:
    write_rows(folder / "a.json", numbered(1))

    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[given])}")

    assert printed in str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])


WIDE_TABLE = "CREATE TABLE t (id BIGINT, note STRING, city STRING)"
NESTED: list[dict[str, Any]] = [
    {"Id": 1, "who": {"name": "Ada", "home": {"city": "Turin"}}},
    {"Id": 2, "who": {"name": "Bob", "home": None}},
    {"Id": 3, "who": None},
]


def load(node: Node, folder: Path, insert: str) -> list[dict[str, Any]]:
    """Load one file with an INSERT; $ is the placeholder of the source."""
    source = f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')"
    node.sql(f"CREATE JOB j ON STREAMING DO INSERT INTO {insert.replace('$', source)}")
    node.run()
    return node.rows("t")


@pytest.mark.parametrize(
    ("record", "insert", "row"),
    [
        ({"a": "x", "b": "y", "c": 5}, "t SELECT c, b, a FROM $", (5, "y", "x")),
        (
            {"a": "x", "b": "y", "c": 5},
            "t SELECT c, b AS city, a AS note FROM $",
            (5, "y", "x"),
        ),
        ({"city": "x", "ID": 5}, "t SELECT * FROM $", (5, None, "x")),
        ({"city": "x", "id": 5}, "t (note, id) SELECT * FROM $", (5, "x", None)),
        ({"id": 1, "note": "a"}, "t (city, id) SELECT note, id FROM $", (1, None, "a")),
        ({"id": 1, "note": "a"}, "t SELECT id, note, note FROM $", (1, "a", "a")),
    ],
    ids=[
        "by position",
        "aliases do not matter",
        "a star fills by name",
        "a star with columns fills by position",
        "columns that are not listed are null",
        "one field fills two columns",
    ],
)
def test_a_select_fills_the_columns_of_the_table(
    node: Node, folder: Path, *, record: dict[str, Any], insert: str, row: tuple[object, ...]
) -> None:
    write_rows(folder / "a.json", [record])
    node.sql(WIDE_TABLE)

    (found,) = load(node, folder, insert)

    assert found == dict(zip(("id", "note", "city"), row, strict=True))


def test_nested_fields_are_loaded_and_are_null_inside_a_null(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", NESTED)
    node.sql(WIDE_TABLE)

    rows = load(node, folder, "t SELECT id, who.name AS n, who.home.city FROM $")

    assert rows == [
        {"id": 1, "note": "Ada", "city": "Turin"},
        {"id": 2, "note": "Bob", "city": None},
        {"id": 3, "note": None, "city": None},
    ]


def test_a_field_that_first_appears_in_later_files_is_not_loaded(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", [{"id": 1}])
    node.sql(WIDE_TABLE)
    load(node, folder, "t SELECT * FROM $")
    write_rows(folder / "b.json", [{"id": 2, "note": "new"}])

    node.run()

    assert node.rows("t") == [
        {"id": 1, "note": None, "city": None},
        {"id": 2, "note": None, "city": None},
    ]


def test_a_declared_schema_replaces_inference(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", [{"id": 1}])
    node.sql(f"{CREATE_TABLE}; {create_job(folder, schema='id INT, note STRING')}")
    write_rows(folder / "b.json", numbered(2))

    node.run()

    assert node.rows("t") == [{"id": 1, "note": None}, *numbered(2)]


def test_a_uri_can_name_one_file(node: Node, folder: Path) -> None:
    path = write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))

    node.sql(f"{CREATE_TABLE}; {create_job(folder, uri=f'file://{path}')}")
    node.run()

    assert node.rows("t") == numbered(1)


def test_s3_is_an_alias_of_files(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    job = create_job(folder).replace("FILES(", "S3(")

    node.sql(f"{CREATE_TABLE}; {job}")
    node.run()

    assert node.rows("t") == numbered(1)
    assert "S3(" in str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])


def test_a_failed_attempt_does_not_end_a_run_before_all_files_of_its_start_are_loaded(
    open_node: OpenNode, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 2)

    def outage() -> None:
        raise ExternalError("the disk did not respond", code=Code.STORAGE_ERR)

    node = open_node(clock=MovedClock(), work=Failing(first=outage, times=4))
    for number in (1, 2, 3, 4):
        write_rows(folder / f"{number}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
