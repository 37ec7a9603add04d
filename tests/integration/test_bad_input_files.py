"""Files that are missing, forbidden, odd or moving: a clear error, and nothing lost.

What may heal by itself pauses the job with a code that is resumed; the fake clock makes the
waiting between the attempts short.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError, PenstockError
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    pause_reason,
    without_privileges,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


@pytest.fixture
def patient(open_node: OpenNode) -> Iterator[Node]:
    """A node whose waits are short."""
    node = open_node(clock=MovedClock())
    yield node
    node.catalog.close()


def resume(node: Node) -> None:
    node.sql("RESUME JOB j")
    node.run()


def test_a_folder_that_does_not_exist_is_refused_at_create(node: Node, folder: Path) -> None:
    node.sql(CREATE_TABLE)

    with pytest.raises(ExternalError, match="does not exist") as refused:
        node.sql(create_job(folder / "nowhere"))

    assert refused.value.code is Code.GET_REMOTE_DATA_ERROR
    assert f'folder "{folder}/nowhere/"' in refused.value.message
    assert node.sql("SHOW JOBS") == []


def test_a_path_through_a_file_is_refused_at_create(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)

    with pytest.raises(ExternalError, match="is not a folder") as refused:
        node.sql(create_job(folder / "a.json"))

    assert f'"{folder}/a.json/"' in refused.value.message
    assert node.sql("SHOW JOBS") == []


def test_a_pattern_that_matches_nothing_is_refused_at_create(node: Node, folder: Path) -> None:
    write_rows(folder / "a.csv", numbered(1))
    node.sql(CREATE_TABLE)

    with pytest.raises(PenstockError, match="no file matches") as refused:
        node.sql(create_job(folder))

    assert refused.value.code is Code.META_NOT_FOUND_ERR
    assert f'"file://{folder}/*.json"' in refused.value.message
    assert node.sql("SHOW JOBS") == []


@pytest.mark.parametrize(
    ("uri", "code", "message"),
    [
        ("s3://Bucket/in/", Code.OPTION_ERR, 'must name a bucket after s3://, not "Bucket"'),
        ("s3:///in/", Code.OPTION_ERR, 'must name a bucket after s3://, not ""'),
        ("s3://bucket/in//x/", Code.OPTION_ERR, 'path "in//x/" must not hold an empty part'),
        (
            "ftp://host/in/",
            Code.OPTION_ERR,
            "must begin with one of file://, s3://, gs://, az://, not ftp://",
        ),
        ("file://in/", Code.OPTION_ERR, "must have an absolute path after file://"),
        ("/in/*.json", Code.OPTION_ERR, '"/in/\\*.json" must begin with file:// or s3://'),
        ("file:///in/../x/", Code.OPTION_ERR, "must not hold an empty part"),
    ],
)
def test_a_uri_of_the_wrong_form_is_refused_at_create(
    node: Node, uri: str, code: Code, message: str
) -> None:
    node.sql(CREATE_TABLE)

    with pytest.raises(PenstockError, match=message) as refused:
        node.sql(create_job(Path("/in"), uri=uri))

    assert refused.value.code is code
    assert node.sql("SHOW JOBS") == []


def test_a_folder_that_goes_after_create_pauses_the_job_and_heals(
    patient: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    patient.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    patient.run()
    folder.rename(folder.with_name("away"))

    reason = pause_reason(patient)

    assert reason == f'GET_REMOTE_DATA_ERROR: folder "{folder}/" does not exist'
    folder.with_name("away").rename(folder)
    write_rows(folder / "b.json", numbered(2))
    resume(patient)
    assert patient.rows("t") == numbered(1, 2)
    assert patient.show("j")["position"] == str(folder / "b.json")


def test_files_that_were_loaded_and_went_are_not_missed(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    (folder / "a.json").unlink()

    node.run()

    assert node.rows("t") == numbered(1)
    assert node.show("j")["reason"] == ""
    assert node.show("j")["position"] == str(folder / "a.json")


def test_a_file_that_may_not_be_read_pauses_the_job_and_is_named(foreign: Path) -> None:
    folder = foreign / "in"
    node = Node(foreign / "home", clock=MovedClock())
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "b.json", numbered(2)).chmod(0)

    with without_privileges(foreign):
        reason = pause_reason(node)

    assert reason == (
        f'GET_REMOTE_DATA_ERROR: file "{folder}/b.json" could not be read: permission denied'
    )
    (folder / "b.json").chmod(0o644)
    resume(node)
    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "b.json")


def test_a_folder_that_may_not_be_listed_is_refused_at_create_and_named(foreign: Path) -> None:
    folder = foreign / "in"
    node = Node(foreign / "home")
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, name='other')}; DROP JOB other")
    folder.chmod(0)

    with (
        without_privileges(foreign),
        pytest.raises(ExternalError, match="permission denied") as refused,
    ):
        node.sql(create_job(folder))

    folder.chmod(0o755)
    assert f'folder "{folder}/"' in refused.value.message
    assert "Give the user that runs Penstock the right to it." in refused.value.hint
    assert node.sql("SHOW JOBS") == []


def test_a_file_that_vanishes_after_the_listing_is_left_out_and_the_rest_loads(
    open_node: OpenNode, folder: Path
) -> None:
    vanish = Failing(first=(folder / "b.json").unlink)
    node = open_node(clock=MovedClock(), work=vanish)
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(0, 2)
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    failed = node.sql("SHOW EPOCHS FOR j")[-2]
    assert f'file "{folder}/b.json" does not exist' in str(failed["reason"])
    assert node.show("j")["files_loaded"] == 2


def test_a_vanished_file_that_comes_back_loads_once(open_node: OpenNode, folder: Path) -> None:
    vanish = Failing(first=(folder / "b.json").unlink)
    node = open_node(clock=MovedClock(), work=vanish)
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "b.json", numbered(2))

    node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "b.json")


def test_the_last_waiting_file_may_vanish(open_node: OpenNode, folder: Path) -> None:
    vanish = Failing(first=(folder / "a.json").unlink)
    node = open_node(clock=MovedClock(), work=vanish)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == []
    assert attempts(node) == [(1, 1, "FAILED")]
    assert node.show("j")["position"] == "beginning"
    assert node.show("j")["reason"] == ""


def test_a_file_that_is_replaced_after_the_listing_is_planned_anew(
    open_node: OpenNode, folder: Path
) -> None:
    replacing = Failing(first=lambda: replace_file(folder / "b.json"))
    node = open_node(clock=MovedClock(), work=replacing)
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1, 3, 4)
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    failed = node.sql("SHOW EPOCHS FOR j")[-2]
    assert f'file "{folder}/b.json" was changed after it was listed' in str(failed["reason"])
    assert node.job("j").notices == ()


def replace_file(path: Path) -> None:
    """Put another file in the place of one, as a careful writer does."""
    write_rows(path.with_name("new"), numbered(3, 4)).replace(path)


def test_a_file_that_keeps_changing_pauses_the_job_after_four_attempts(
    open_node: OpenNode, folder: Path
) -> None:
    rewriting = Failing(first=lambda: replace_file(folder / "a.json"), times=8)
    node = open_node(clock=MovedClock(), work=rewriting)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    reason = pause_reason(node)

    assert f'GET_REMOTE_DATA_ERROR: file "{folder}/a.json" was changed' in reason
    first = [(1, attempt, "FAILED") for attempt in range(1, 5)]
    assert attempts(node)[:4] == first
    assert node.show("j")["position"] == "beginning"
    resume(node)
    assert node.rows("t") == numbered(3, 4)


@pytest.mark.parametrize("name", [b"b\xff.json", b"\xe9t\xe9.json"])
def test_a_name_that_is_not_utf8_pauses_the_job_and_is_shown(
    patient: Node, folder: Path, name: bytes
) -> None:
    write_rows(folder / "a.json", numbered(1))
    patient.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    patient.run()
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
    write_rows(odd, numbered(2))

    reason = pause_reason(patient)

    shown = name.decode("utf-8", "backslashreplace")
    assert reason == (
        f'GET_REMOTE_DATA_ERROR: file name "{shown}" in folder "{folder}" is not UTF-8'
    )
    assert patient.show("j")["position"] == str(folder / "a.json")
    odd.rename(folder / "b.json")
    resume(patient)
    assert patient.rows("t") == numbered(1, 2)


def test_a_name_that_is_not_utf8_and_does_not_match_harms_nobody(
    node: Node, folder: Path
) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.txt")).touch()
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1)


def test_a_pipe_and_a_folder_with_matching_names_are_no_files(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    (folder / "b.json").mkdir()
    os.mkfifo(folder / "c.json")
    (folder / "d.json").symlink_to(folder / "nowhere")
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1)
    assert node.show("j")["files_loaded"] == 1
