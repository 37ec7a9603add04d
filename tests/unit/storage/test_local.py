"""Files as a store: links, unusual names, changes during a listing, disk failures."""

import os
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from penstock.errors import Code, ExternalError
from penstock.storage.local import LocalStore
from penstock.storage.store import (
    FolderMissingError,
    ObjectChangedError,
    ObjectMeta,
    ObjectMissingError,
)
from tests.error_values import assert_names, raises

STORE = LocalStore()


def test_a_listing_has_size_and_time_of_a_file(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", content="12345")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))

    [meta] = listed(tmp_path)

    assert meta.key == str(path)
    assert meta.size_bytes == 5
    assert meta.modified_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert meta.etag == f"{path.stat().st_ino:x}-{1_700_000_000_123_456_789:x}-5"


def test_a_folder_is_sorted_with_the_slash_after_its_name(tmp_path: Path) -> None:
    for name in ("a/b", "a-b", "a b", "a0", "a.b/c"):
        put(tmp_path, name)

    assert names(tmp_path) == ["a b", "a-b", "a.b/c", "a/b", "a0"]


def test_hidden_files_are_listed_and_pipes_are_not(tmp_path: Path) -> None:
    put(tmp_path, ".hidden")
    os.mkfifo(tmp_path / "pipe")

    assert names(tmp_path) == [".hidden"]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    put(tmp_path, "real/x")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "in" / "file").symlink_to(tmp_path / "real" / "x")

    assert names(tmp_path / "in") == ["file", "folder/x"]


def test_a_link_without_a_target_or_in_a_circle_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "deep/x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "deep" / "up").symlink_to(tmp_path)

    assert names(tmp_path) == ["deep/x"]


def test_a_tree_deeper_than_the_recursion_limit_is_listed(tmp_path: Path) -> None:
    put(tmp_path, "z")
    deepest = nested_folders(tmp_path, depth=1_500)
    put(deepest, "x")

    found = names(tmp_path)
    (deepest / "x").unlink()
    os.removedirs(deepest)

    assert found == ["d/" * 1_500 + "x", "z"]


def test_a_file_that_vanishes_during_the_listing_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a")
    vanishing = put(tmp_path, "b")
    put(tmp_path, "c")
    listing = STORE.list(f"{tmp_path}/", selection=Everything())
    next(listing)

    vanishing.unlink()

    assert [Path(meta.key).name for meta in listing] == ["c"]


def test_a_folder_that_vanishes_during_the_listing_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a")
    vanishing = put(tmp_path, "b/x")
    listing = STORE.list(f"{tmp_path}/", selection=Everything())
    next(listing)

    vanishing.unlink()
    vanishing.parent.rmdir()

    assert list(listing) == []


def test_a_folder_that_cannot_hold_a_match_is_not_entered(tmp_path: Path) -> None:
    put(tmp_path, "in/x")
    put(tmp_path, "out/x")
    selection = Everything(excluded=f"{tmp_path}/out/")

    keys = [meta.key for meta in STORE.list(f"{tmp_path}/", selection=selection)]

    assert keys == [f"{tmp_path}/in/x"]
    assert selection.calls == [f"{tmp_path}/in/x"]


def test_a_selected_name_that_is_not_utf_8_is_reported_with_its_folder(tmp_path: Path) -> None:
    put(tmp_path, "in/bad-\udcff.json")

    with pytest.raises(ExternalError) as failure:
        listed(tmp_path)

    assert_names(failure.value.message, '"bad-\\xff.json"', f'"{tmp_path}/in"', "UTF-8")
    assert failure.value.code is Code.GET_REMOTE_DATA_ERROR


def test_a_missing_folder_fails_the_listing(tmp_path: Path) -> None:
    with pytest.raises(FolderMissingError) as failure:
        listed(tmp_path / "gone")

    assert_names(failure.value.message, f'"{tmp_path}/gone/"', "does not exist")
    assert failure.value.code is Code.GET_REMOTE_DATA_ERROR


def test_a_file_in_place_of_the_folder_fails_the_listing(tmp_path: Path) -> None:
    path = put(tmp_path, "a")

    with raises(FolderMissingError, Code.GET_REMOTE_DATA_ERROR, 'a/"', "not a folder"):
        listed(path)


def test_an_unreadable_folder_fails_the_listing(tmp_path: Path) -> None:
    put(tmp_path, "shut/x")
    (tmp_path / "shut").chmod(0)

    with without_privileges(), pytest.raises(ExternalError) as failure:
        listed(tmp_path / "shut")

    assert_names(failure.value.message, f'"{tmp_path}/shut/"', "permission denied")
    assert failure.value.hint


def test_an_unreadable_file_is_not_reported_as_missing(tmp_path: Path) -> None:
    path = put(tmp_path, "a")
    path.chmod(0)
    [meta] = listed(tmp_path)

    with (
        without_privileges(),
        raises(
            ExternalError, Code.GET_REMOTE_DATA_ERROR, '/a"', "permission denied"
        ) as failure,
        STORE.open(meta.key, etag=meta.etag),
    ):
        pass

    assert not isinstance(failure.value, ObjectMissingError)


def test_listing_many_files_keeps_only_their_names(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"{number:0100d}").touch()

    tracemalloc.start()
    count = sum(1 for _ in STORE.list(f"{tmp_path}/", selection=Everything(recorded=False)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 3_000
    assert peak_bytes < 3_000 * 200


def test_a_time_beyond_the_calendar_does_not_fail_the_listing() -> None:
    # Unlike most file systems, this one can store such a time.
    with TemporaryDirectory(dir="/dev/shm") as folder:
        os.utime(put(Path(folder), "a"), (0, 10**12))

        [meta] = listed(Path(folder))

    assert meta.modified_at == datetime.max.replace(tzinfo=UTC)


def test_a_file_edited_in_place_while_it_is_read_is_detected(tmp_path: Path) -> None:
    path = put(tmp_path, "a", content="before")
    [meta] = listed(tmp_path)

    with raises(ObjectChangedError, Code.GET_REMOTE_DATA_ERROR, 'a"', "changed"):
        read(meta, lambda: path.write_text("afterwards"))


def test_a_file_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = put(tmp_path, "a", content="before")
    [meta] = listed(tmp_path)

    content = read(meta, lambda: STORE.write(str(path), b"afterwards"))

    assert content == b"before"


def test_a_change_during_the_read_replaces_the_readers_error(tmp_path: Path) -> None:
    path = put(tmp_path, "a", content="before")
    [meta] = listed(tmp_path)

    with pytest.raises(ObjectChangedError) as failure:
        read(meta, lambda: int(f"{path.write_text('afterwards')} is not a number"))

    assert isinstance(failure.value.__context__, ValueError)


def test_a_stream_that_its_reader_closed_is_still_checked(tmp_path: Path) -> None:
    path = put(tmp_path, "a", content="before")
    [meta] = listed(tmp_path)

    with (
        pytest.raises(ObjectChangedError),
        STORE.open(meta.key, etag=meta.etag) as stream,
        stream,
    ):
        path.write_text("afterwards")


def test_a_pipe_or_folder_in_place_of_the_file_is_a_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    with raises(ObjectMissingError, Code.GET_REMOTE_DATA_ERROR, 'pipe"', "not a file"):
        STORE.read_bytes(f"{tmp_path}/pipe")
    with raises(ObjectMissingError, Code.GET_REMOTE_DATA_ERROR, 'folder"', "not a file"):
        STORE.read_bytes(f"{tmp_path}/folder")
    assert STORE.head(f"{tmp_path}/folder") is None
    assert STORE.head(f"{tmp_path}/pipe") is None


def test_a_disk_that_fails_while_reading_names_the_file() -> None:
    # The first page of a process is never mapped, so reading it fails like a bad disk.
    with pytest.raises(ExternalError) as failure:
        STORE.read_bytes("/proc/self/mem")

    assert_names(failure.value.message, '"/proc/self/mem"', "input/output error")
    assert failure.value.code is Code.GET_REMOTE_DATA_ERROR


def test_a_disk_that_fails_under_a_stream_names_the_file() -> None:
    key = "/proc/self/mem"
    status = Path(key).stat()
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"

    with (
        raises(
            ExternalError, Code.GET_REMOTE_DATA_ERROR, '"/proc/self/mem"', "input/output error"
        ),
        STORE.open(key, etag=etag) as stream,
    ):
        stream.read(10)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = put(tmp_path, "a", content="old")

    with file_size_limit(1_000), pytest.raises(ExternalError) as failure:
        STORE.write(str(path), b"x" * 10_000)

    assert_names(failure.value.message, f'"{path}"', "file too large")
    assert failure.value.code is Code.STORAGE_ERR
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208 (hidden files count too)


def test_a_new_file_that_cannot_be_written_is_not_reported_as_existing(tmp_path: Path) -> None:
    put(tmp_path, "file")

    with raises(ExternalError, Code.STORAGE_ERR, '/file/below"', "not a directory") as failure:
        STORE.write_new(f"{tmp_path}/file/below", b"x")

    assert failure.value.code is Code.STORAGE_ERR


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    key = f"{tmp_path}/new/a"

    STORE.write_new(key, b"1")
    STORE.write_new(key, b"2")
    STORE.write(key, b"3")

    assert os.listdir(tmp_path / "new") == ["a"]  # noqa: PTH208 (hidden files count too)


def test_syncing_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(ExternalError) as failure:
        STORE.sync([str(tmp_path), f"{tmp_path}/gone"])

    fact = f'file "{tmp_path}/gone" could not be written: no such file or directory'
    assert failure.value.message == fact
    assert failure.value.code is Code.STORAGE_ERR


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    put(tmp_path, "file")

    with pytest.raises(ExternalError) as failure:
        STORE.create_folder(f"{tmp_path}/file/below")

    fact = f'folder "{tmp_path}/file/below" could not be created: not a directory'
    assert failure.value.message == fact
    assert failure.value.code is Code.STORAGE_ERR


def test_an_unreadable_folder_is_not_reported_as_empty(tmp_path: Path) -> None:
    put(tmp_path, "shut/x")
    (tmp_path / "shut").chmod(0)

    with (
        without_privileges(),
        raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "/shut", "permission denied"),
    ):
        STORE.holds(f"{tmp_path}/shut")


def test_the_last_folder_remains_when_deleting_fails() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for one in ("t/a", "t/deep/b", "t/log/0"):
            put(folder, one)
        (folder / "t" / "deep").chmod(0o555)

        with without_privileges(), pytest.raises(ExternalError) as failure:
            STORE.delete_below(f"{folder}/t/", last=f"{folder}/t/log/")

        assert names(folder / "t" / "log") == ["0"]
    assert_names(failure.value.message, f'"{folder}/t/"', "deleted", "permission denied")
    assert failure.value.code is Code.STORAGE_ERR


def test_a_folder_that_cannot_be_read_is_not_deleted_silently(tmp_path: Path) -> None:
    put(tmp_path, "shut/t/x")
    (tmp_path / "shut").chmod(0)

    with (
        without_privileges(),
        raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "/shut", "permission denied"),
    ):
        STORE.delete_below(f"{tmp_path}/shut/t/")


def test_a_link_to_a_folder_is_deleted_and_the_folder_stays(tmp_path: Path) -> None:
    put(tmp_path, "real/x")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "real")

    STORE.delete_below(f"{tmp_path}/t/")

    assert names(tmp_path) == ["real/x"]
    assert not (tmp_path / "t").exists()


def test_a_new_file_in_a_folder_that_does_not_exist_is_an_external_error(
    tmp_path: Path,
) -> None:
    with raises(ExternalError, Code.STORAGE_ERR, "/missing/part-") as failure:
        STORE.create(f"{tmp_path}/missing", "part-0")

    assert failure.value.code is Code.STORAGE_ERR


def test_a_new_file_that_exceeds_the_disk_can_be_aborted(tmp_path: Path) -> None:
    new = STORE.create(str(tmp_path), "day=1/part-0")
    with file_size_limit(1_000), pytest.raises(OSError, match="File too large"):
        new.file.write(b"x" * 10_000)

    new.abort()

    assert os.listdir(tmp_path) == []  # noqa: PTH208 (folders count too)


@dataclass(kw_only=True)
class Everything:
    """Selects every key, except below one folder; records its calls."""

    excluded: str = ""
    recorded: bool = True
    calls: list[str] = field(default_factory=list)

    def matches(self, key: str) -> bool:
        if self.recorded:
            self.calls.append(key)
        return True

    def may_contain(self, folder: str) -> bool:
        return folder != self.excluded


def put(folder: Path, name: str, *, content: str = "{}") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def nested_folders(folder: Path, *, depth: int) -> Path:
    for _ in range(depth):
        folder /= "d"
        folder.mkdir()
    return folder


def read(meta: ObjectMeta, meanwhile: Callable[[], object]) -> bytes:
    with STORE.open(meta.key, etag=meta.etag) as stream:
        first = stream.read(1)
        meanwhile()
        return first + stream.read()


def listed(folder: Path) -> list[ObjectMeta]:
    return list(STORE.list(f"{folder}/", selection=Everything()))


def names(folder: Path) -> list[str]:
    return [meta.key.removeprefix(f"{folder}/") for meta in listed(folder)]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run the block as an ordinary user, even if root runs the tests."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
