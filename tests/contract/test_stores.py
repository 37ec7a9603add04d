"""The contract of every store; another kind of store is another parameter of ``place``."""

import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.errors import ExternalError, InvariantError
from penstock.storage.bucket import BucketStore
from penstock.storage.options import StoreOptions
from penstock.storage.store import FolderMissingError, ObjectChangedError, ObjectMissingError
from penstock.storage.uris import Scheme
from tests.contract.store_places import (
    Place,
    bucket_place,
    container_place,
    google_place,
    local_place,
    store_of,
)
from tests.servers.proxy import Proxied, Request, refusal

# More objects than one request lists or deletes.
MANY = 1_050
# More bytes than one request reads or writes.
LARGE = bytes(range(251)) * 80_000
# One worker runs all tests of Azurite, because each worker would start its own server.
ON_AZURITE = (pytest.mark.integration, pytest.mark.xdist_group("azurite"))


class EndingWith:
    """Selects the keys with an ending, in any folder."""

    def __init__(self, ending: str) -> None:
        self._ending = ending

    def matches(self, key: str) -> bool:
        return key.endswith(self._ending)

    def may_contain(self, _folder: str) -> bool:
        return True


@pytest.fixture(
    params=[
        "local",
        pytest.param("seaweedfs", marks=pytest.mark.integration),
        pytest.param("moto", marks=pytest.mark.integration),
        pytest.param("google", marks=pytest.mark.integration),
        pytest.param("azurite", marks=ON_AZURITE),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "seaweedfs":
            return bucket_place(request.getfixturevalue("bucket"), in_byte_order=False)
        case "moto":
            return bucket_place(request.getfixturevalue("moto_bucket"), in_byte_order=True)
        case "google":
            return google_place(request.getfixturevalue("google_bucket"))
        case "azurite":
            return container_place(request.getfixturevalue("container"))
        case _:
            return local_place(tmp_path)


def test_a_listing_is_in_byte_order_if_the_store_guarantees_it(
    place: Place,
) -> None:
    place.put("a/b", "a0", "a-b", "a b", "é", "z", "\uff5e", "\U0001f600", "a/.c")

    found = place.names()

    names = ["a b", "a-b", "a/.c", "a/b", "a0", "z", "é", "\uff5e", "\U0001f600"]
    in_order = sorted(names, key=lambda name: name.encode(place.encoding))
    assert sorted(found) == names
    assert (found == in_order) is place.in_byte_order


def test_a_listing_stays_below_its_prefix(place: Place) -> None:
    place.put("in/a", "in/deep/b", "in-old/c", "inner", "out/d")

    found = place.names("in/")

    assert found == ["in/a", "in/deep/b"]


def test_a_listing_yields_only_what_is_selected(place: Place) -> None:
    place.put("a.json", "b.csv", "deep/c.json")

    listing = place.store.list(place.prefix, selection=EndingWith(".json"))

    assert [meta.key.removeprefix(place.prefix) for meta in listing] == [
        "a.json",
        "deep/c.json",
    ]


@pytest.mark.parametrize(
    ("after", "listed"),
    [
        ("", "abcd"),
        ("a", "bcd"),
        ("b", "cd"),
        ("bb", "cd"),
        ("d", ""),
        ("é", ""),
        ("B", "abcd"),
    ],
)
def test_a_listing_starts_after_a_key_that_need_not_exist(
    place: Place, after: str, listed: str
) -> None:
    place.put("in/a", "in/b", "in/c", "in/d")

    found = place.names("in/", after=f"in/{after}" if after else "")

    assert found == [f"in/{name}" for name in listed]


def test_a_listing_after_a_key_omits_the_folders_before_it_if_it_is_ordered(
    place: Place,
) -> None:
    place.put("a-b", "a/a", "a/b", "a/c", "a0", "b/a")

    found = place.names(after="a/b")

    assert (found == ["a/c", "a0", "b/a"]) is place.in_byte_order
    assert {"a/c", "a0", "b/a"} <= set(found)


def test_many_objects_are_listed_once_each_and_all_are_deleted(
    place: Place,
) -> None:
    names = [f"t/{kind}/{number:04d}" for kind in ("a", "log") for number in range(MANY // 2)]
    place.put_many(names)

    assert place.names("t/") == names
    assert place.names("t/", after=names[20]) == names[21:]

    place.put("u")
    place.store.delete_below(f"{place.prefix}t/", last=f"{place.prefix}t/log/")

    assert place.names() == ["u"]


def test_a_missing_folder_differs_from_an_empty_one_if_the_store_has_folders(
    place: Place,
) -> None:
    place.folder("empty")
    try:
        missing = bool(place.names("missing/"))
    except FolderMissingError:
        missing = True

    assert missing is place.folders
    assert place.names("empty/") == []


def test_a_listing_has_the_size_and_an_aware_time(place: Place) -> None:
    place.store.write(place.prefix + "a", b"12345")

    [meta] = place.listed()

    assert meta.size_bytes == 5
    assert meta.modified_at.tzinfo is not None


def test_head_returns_an_object_as_in_a_listing(place: Place) -> None:
    place.put("folder/a", "folder/b")

    first, second = place.listed()

    assert place.store.head(first.key) == first
    assert place.store.head(second.key) == second


def test_head_returns_none_if_there_is_no_object(place: Place) -> None:
    place.put("folder/a")

    for name in ("folder", "fold", "folder/b", "folder/a/b", "missing/a"):
        assert place.store.head(place.prefix + name) is None


def test_an_empty_object_is_a_file_or_is_ignored(place: Place) -> None:
    place.store.write(place.prefix + "a", b"")

    assert place.names() == (["a"] if place.empty_files else [])
    assert place.store.head(place.prefix + "a") == next(iter(place.listed()), None)
    assert place.store.read_bytes(place.prefix + "a") == b""
    assert place.store.holds(place.prefix.removesuffix("/")) is place.empty_files


def test_a_written_object_can_be_read(place: Place) -> None:
    key = place.prefix + "new/folder/a"
    content = bytes(range(256)) * 1000

    place.store.write(key, content)

    assert place.store.read_bytes(key) == content
    assert place.store.head(key) is not None


@pytest.mark.parametrize("name", ["a b", "100%25#1?", "a+b&c=d", "é\u0301 ☃", "~'\"()[]{}!*"])
def test_a_key_is_taken_literally(place: Place, name: str) -> None:
    place.put(f"in {name}/{name}")

    assert place.names(f"in {name}/") == [f"in {name}/{name}"]
    assert (
        place.store.read_bytes(f"{place.prefix}in {name}/{name}")
        == f"in {name}/{name}".encode()
    )
    assert place.store.holds(f"{place.prefix}in {name}")


def test_the_listed_object_can_be_read_and_sought(place: Place) -> None:
    place.store.write(place.prefix + "a", b"0123456789")
    [meta] = place.listed()

    with place.store.open(meta.key, etag=meta.etag) as stream:
        stream.seek(4)
        part = stream.read(3)

    assert part == b"456"


def test_a_large_object_can_be_read_at_any_offset(place: Place) -> None:
    place.store.write(place.prefix + "a", LARGE)
    [meta] = place.listed()

    with place.store.open(meta.key, etag=meta.etag) as stream:
        end = stream.seek(-5, io.SEEK_END)
        last = stream.read()
        stream.seek(8 * 2**20 - 10)
        across = stream.read(20)
        at = stream.tell()
        beyond = stream.seek(len(LARGE) + 10), stream.read(1)
        stream.seek(0)
        whole = stream.read()

    assert (end, last) == (len(LARGE) - 5, LARGE[-5:])
    assert (across, at) == (LARGE[8 * 2**20 - 10 : at], 8 * 2**20 + 10)
    assert beyond == (len(LARGE) + 10, b"")
    assert whole == LARGE


def test_an_object_can_be_opened_without_an_etag(place: Place) -> None:
    key = place.prefix + "a"
    place.store.write(key, b"old")
    place.store.write(key, b"newer")

    with place.store.open(key, etag=None) as stream:
        assert stream.read() == b"newer"
    with (
        pytest.raises(ObjectMissingError),
        place.store.open(place.prefix + "gone", etag=None),
    ):
        pass


def test_a_prefetched_object_is_read_like_any_other(place: Place) -> None:
    place.store.write(place.prefix + "a", b"0123456789")
    [meta] = place.listed()

    for _ in range(2):
        place.store.prefetch(meta.key, etag=meta.etag)
    contents = []
    for _ in range(2):
        with place.store.open(meta.key, etag=meta.etag) as stream:
            contents.append(stream.read())

    assert contents == [b"0123456789"] * 2


def test_an_error_of_a_prefetched_object_is_raised_when_it_is_opened(
    place: Place,
) -> None:
    place.put("gone", "changed")
    changed, gone = place.listed()
    place.store.delete_below(f"{place.prefix}")
    place.store.write(changed.key, b"otherwise")

    for meta in (changed, gone):
        place.store.prefetch(meta.key, etag=meta.etag)

    with pytest.raises(ObjectChangedError), place.store.open(changed.key, etag=changed.etag):
        pass
    with pytest.raises(ObjectMissingError), place.store.open(gone.key, etag=gone.etag):
        pass


def test_an_overwritten_object_cannot_be_opened_by_its_old_etag(place: Place) -> None:
    place.store.write(place.prefix + "a", b"old")
    [meta] = place.listed()

    place.store.write(meta.key, b"new")

    with (
        pytest.raises(ObjectChangedError) as failure,
        place.store.open(meta.key, etag=meta.etag),
    ):
        pass
    assert failure.value.retryable


def test_an_overwritten_object_gets_another_etag(place: Place) -> None:
    place.store.write(place.prefix + "a", b"old")
    [before] = place.listed()

    place.store.write(before.key, b"new")

    [after] = place.listed()
    assert after.etag != before.etag


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size_bytes", [1_000_000, 20_000_000])
def test_a_read_never_mixes_an_old_object_with_a_new_one(
    place: Place, size_bytes: int, *, known: bool
) -> None:
    old = b"o" * size_bytes
    place.store.write(place.prefix + "a", old)
    [meta] = place.listed()

    try:
        with place.store.open(meta.key, etag=meta.etag if known else None) as stream:
            content = stream.read(10)
            place.store.write(meta.key, b"n" * size_bytes)
            content += stream.read()
    except ObjectChangedError:
        content = old

    assert content == old


def test_a_missing_object_differs_from_a_changed_one(place: Place) -> None:
    key = place.prefix + "gone"

    with pytest.raises(ObjectMissingError) as failure, place.store.open(key, etag="any"):
        pass
    with pytest.raises(ObjectMissingError):
        place.store.read_bytes(key)

    assert failure.value.retryable
    assert place.store.head(key) is None


@pytest.mark.parametrize("second", [b"second", b"first"], ids=["other", "same"])
def test_write_new_does_not_replace_an_existing_object(place: Place, second: bytes) -> None:
    key = place.prefix + "a"

    results = [place.store.write_new(key, b"first"), place.store.write_new(key, second)]

    assert results == [True, False]
    assert place.store.read_bytes(key) == b"first"


def test_exactly_one_of_many_writers_creates_a_new_key(place: Place) -> None:
    key = place.prefix + "a"
    contents = [str(number).encode() * 10_000 for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        results = list(
            threads.map(lambda content: place.store.write_new(key, content), contents)
        )

    assert results.count(True) == 1
    assert place.store.read_bytes(key) == contents[results.index(True)]


@pytest.mark.parametrize("content", [b"row" * 100, LARGE], ids=["small", "large"])
def test_an_object_written_in_pieces_exists_when_it_is_finished(
    place: Place, content: bytes
) -> None:
    new = place.store.create(place.folder("t"), "day=1/part-0")
    for start in range(0, len(content), 1_000_000):
        new.file.write(content[start : start + 1_000_000])
    written, before = new.file.tell(), place.names("t/")

    size_bytes = new.finish()
    place.store.sync([f"{place.prefix}t/day=1", f"{place.prefix}t", place.prefix])

    assert written == size_bytes == len(content)
    assert before == (["t/day=1/part-0"] if place.key_reserved else [])
    assert place.names("t/") == ["t/day=1/part-0"]
    assert place.store.read_bytes(place.prefix + "t/day=1/part-0") == content


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("content", [b"", b"row" * 100, LARGE], ids=["empty", "small", "large"])
def test_an_aborted_object_is_invisible(
    place: Place, content: bytes, *, finished: bool
) -> None:
    place.put("t/other")
    new = place.store.create(place.folder("t"), "day=1/part-0")
    new.file.write(content)
    if finished:
        new.finish()

    new.abort()

    assert place.names() == ["t/other"]
    assert place.store.head(place.prefix + "t/day=1/part-0") is None
    assert not place.store.holds(place.prefix + "t/day=1")
    parts_sent = content == LARGE and not finished
    assert bool(place.unfinished()) is (parts_sent and place.sent_parts_stay)


def test_an_object_can_be_aborted_twice(place: Place) -> None:
    new = place.store.create(place.folder("t"), "part-0")
    new.file.write(b"rows")

    new.abort()
    new.abort()

    assert place.names("t/") == []


def test_an_unfinished_object_does_not_replace_an_existing_object(place: Place) -> None:
    place.put("t/part-0")
    try:
        place.store.create(place.folder("t"), "part-0").abort()
    except InvariantError:
        refused = True
    else:
        refused = False

    assert refused is place.key_reserved
    assert place.store.read_bytes(place.prefix + "t/part-0") == b"t/part-0"


def test_synced_keys_can_be_synced_again(place: Place) -> None:
    place.put("t/a", "t/deep/b")
    names = ("t/a", "t/deep/b", "t/deep", "t")

    place.store.sync(place.prefix + name for name in names * 2)

    assert place.names("t/") == ["t/a", "t/deep/b"]


def test_a_folder_is_created_once_and_is_empty(place: Place) -> None:
    for _ in range(2):
        place.store.create_folder(place.prefix + "a/b/c")

    assert place.names() == []
    assert not place.store.holds(place.prefix + "a/b/c")


def test_a_folder_exists_if_it_was_created_or_contains_an_object(place: Place) -> None:
    place.put("in/deep/a", "inner/c", "out")
    place.folder("created")

    found = [
        name
        for name in ("in", "in/deep", "inner", "i", "in/deep/a", "out", "missing", "created")
        if place.store.is_folder(place.prefix + name)
    ]

    assert found == ["in", "in/deep", "inner", *(["created"] if place.folders else [])]


def test_a_folder_contains_the_keys_below_it_and_not_those_of_a_similar_name(
    place: Place,
) -> None:
    place.put("in/deep/a", "in/deep-old/b", "inner/c", "out")

    held = [
        name
        for name in ("in", "in/deep", "inner", "i", "in/dee", "in/deep/a", "out", "missing")
        if place.store.holds(place.prefix + name)
    ]

    assert held == ["in", "in/deep", "inner"]


@pytest.mark.parametrize("last", ["", "t/log/", "t/missing/"])
def test_delete_below_deletes_everything_below_the_prefix_and_nothing_else(
    place: Place, last: str
) -> None:
    beside = ["s/a", "t-old/a", "t0", "tt/log/a"]
    place.put(*beside, "t/a", "t/deep/er/b", "t/log/0", "t/log/deep/1", "t/logs", "t/log-2/c")
    place.store.write(place.prefix + "t/empty", b"")

    place.store.delete_below(f"{place.prefix}t/", last=last and place.prefix + last)

    assert sorted(place.names()) == beside
    assert not place.store.holds(f"{place.prefix}t")


def test_deleting_below_an_empty_prefix_does_nothing(place: Place) -> None:
    place.put("t-old/a")

    place.store.delete_below(f"{place.prefix}t/")
    place.store.delete_below(f"{place.prefix}t/", last=f"{place.prefix}t/log/")

    assert place.names() == ["t-old/a"]


def test_requests_to_remote_stores_are_counted(place: Place) -> None:
    key = place.prefix + "a"

    def read() -> None:
        with place.store.open(key, etag=None) as stream:
            stream.read()

    counts = [place.store.requests]
    for call in (
        lambda: place.store.write(key, b"1"),
        lambda: place.store.write_new(key, b"2"),
        lambda: place.store.create(place.folder("t"), "part-0").finish(),
        lambda: place.store.read_bytes(key),
        read,
        place.listed,
        lambda: place.store.head(key),
        lambda: place.store.holds(place.prefix),
        lambda: place.store.is_folder(place.prefix),
        lambda: place.store.delete_below(f"{place.prefix}t/"),
    ):
        call()
        counts.append(place.store.requests)

    grown = [after > before for before, after in pairwise(counts)]
    assert set(grown) == {place.remote}


def test_a_bucket_store_cannot_be_pickled() -> None:
    options = StoreOptions(access_key="key", secret_key="kept")  # noqa: S106 - Not a real key.
    store = BucketStore(scheme=Scheme.S3, bucket="lake", options=options)

    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(store)


@pytest.mark.integration
def test_the_last_objects_of_a_bucket_remain_when_deleting_fails(
    proxied: Proxied,
) -> None:
    place = bucket_place(proxied.direct, in_byte_order=False)
    place.put("t/a", "t/deep/b", "t/log/0", "t/log/deep/1", "t/logs")
    removals: list[Request] = []

    def second_removal(request: Request) -> bool:
        if request.method in {"POST", "DELETE"}:
            removals.append(request)
        return len(removals) > 1

    proxied.proxy.inject(refusal(403, "AccessDenied", "No."), when=second_removal, times=100)
    with pytest.raises(ExternalError):
        store_of(proxied.bucket).delete_below(f"{place.prefix}t/", last=f"{place.prefix}t/log/")

    assert sorted(place.names()) == ["t/log/0", "t/log/deep/1"]
