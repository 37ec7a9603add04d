"""File names: which names match, and in which order they load, through a whole job."""

from pathlib import Path

import pytest

from tests.integration.driving import idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]


def order_of_files(node: Node) -> list[str]:
    """Return the last file of every epoch, in the order of the epochs."""
    epochs = [row for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    return [str(row["position"]) for row in epochs]


@pytest.mark.parametrize("sibling", ["z.jsonx", "z.json~", ".z.json", "z/z.json"])
def test_t42_a_sibling_that_does_not_match_is_not_a_new_file(
    node: Node, folder: Path, sibling: str
) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    before = node.job("j")
    write_rows(folder / sibling, numbered(2))

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)

    after = node.job("j")
    assert after.epoch_newest == before.epoch_newest == 1
    assert after.progress == before.progress
    assert node.rows("t") == numbered(1)


def test_t42_files_of_several_alternatives_load_in_one_byte_order(
    node: Node, folder: Path
) -> None:
    for number, name in enumerate(["a/1.json", "a/2.json", "b/1.json", "b/2.json"]):
        write_rows(folder / name, numbered(number))
    uri = f"file://{folder}/{{b,a}}/*.json"
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE, uri=uri)}")

    node.run()

    names = ["a/1.json", "a/2.json", "b/1.json", "b/2.json"]
    assert order_of_files(node) == [str(folder / name) for name in names]
    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert node.show("j")["position"] == str(folder / "b/2.json")


def test_t42_names_beyond_the_basic_plane_are_ordered_by_their_bytes(
    node: Node, folder: Path
) -> None:
    names = ["é.json", "\uffee.json", "\U0001f600.json"]
    for number, name in enumerate(names):
        write_rows(folder / name, numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE, late_files='ignore')}")

    node.run()

    assert order_of_files(node) == [str(folder / name) for name in names]
    assert node.rows("t") == numbered(0, 1, 2)
    assert node.show("j")["position"] == str(folder / "\U0001f600.json")


def test_t42_a_name_beyond_the_basic_plane_is_the_last_one_after_a_restart_too(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "\U0001f600.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, late_files='ignore')}")
    node.run()
    write_rows(folder / "\uffee.json", numbered(2))

    node = node.restart()
    node.run()

    assert node.rows("t") == numbered(1)
    assert node.show("j")["position"] == str(folder / "\U0001f600.json")


def test_t42_a_file_that_sorts_between_folder_and_file_loads_once(
    node: Node, folder: Path
) -> None:
    for number, name in enumerate(["o/a", "o/a b", "o/a-b"]):
        write_rows(folder / name, numbered(number))
    uri = f"file://{folder}/o/**"
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE, uri=uri)}")
    node.run()
    (folder / "o/a").rename(folder / "away")
    write_rows(folder / "o/a/b", numbered(3))

    node.run()

    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert node.show("j")["position"] == str(folder / "o/a/b")
    assert node.show("j")["files_loaded"] == 4
