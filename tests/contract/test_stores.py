"""What every store keeps; another kind of store is another parameter of ``place``."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.storage.local import LocalStore
from penstock.storage.objects import ObjectChangedError, ObjectMeta, ObjectMissingError
from penstock.storage.stores import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An empty part of a store: keys begin with the prefix, which ends with a slash."""

    store: Store
    prefix: str

    def put(self, *names: str) -> None:
        for name in names:
            self.store.write(self.prefix + name, name.encode())

    def listed(self, below: str = "") -> list[ObjectMeta]:
        return list(self.store.list(self.prefix + below, selection=All()))

    def names(self, below: str = "") -> list[str]:
        return [meta.key.removeprefix(self.prefix) for meta in self.listed(below)]


class All:
    """Wants every key."""

    def matches(self, _key: str) -> bool:
        return True

    def may_contain(self, _folder: str) -> bool:
        return True


class EndingWith:
    """Wants the keys with an ending, in any folder."""

    def __init__(self, ending: str) -> None:
        self._ending = ending

    def matches(self, key: str) -> bool:
        return key.endswith(self._ending)

    def may_contain(self, _folder: str) -> bool:
        return True


@pytest.fixture(params=["local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    place_by_kind = {"local": lambda: Place(store=LocalStore(), prefix=f"{tmp_path}/")}
    return place_by_kind[request.param]()


def test_a_listing_is_in_byte_order_of_the_whole_keys(place: Place) -> None:
    place.put("a/b", "a0", "a-b", "a b", "é", "z", "\uff5e", "\U0001f600", "a/.c")

    found = place.names()

    assert found == ["a b", "a-b", "a/.c", "a/b", "a0", "z", "é", "\uff5e", "\U0001f600"]


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


def test_a_listing_knows_size_and_an_aware_time(place: Place) -> None:
    place.store.write(place.prefix + "a", b"12345")

    [meta] = place.listed()

    assert meta.size_bytes == 5
    assert meta.modified_at.tzinfo is not None


def test_what_was_written_is_read_again(place: Place) -> None:
    key = place.prefix + "new/folder/a"
    content = bytes(range(256)) * 1000

    place.store.write(key, content)

    assert place.store.read_bytes(key) == content
    assert place.store.exists(key)


def test_the_listed_object_can_be_read_and_sought(place: Place) -> None:
    place.store.write(place.prefix + "a", b"0123456789")
    [meta] = place.listed()

    with place.store.open(meta.key, etag=meta.etag) as stream:
        stream.seek(4)
        part = stream.read(3)

    assert part == b"456"


def test_an_object_written_anew_is_not_the_one_that_was_listed(place: Place) -> None:
    place.store.write(place.prefix + "a", b"old")
    [meta] = place.listed()

    place.store.write(meta.key, b"new")

    with (
        pytest.raises(ObjectChangedError) as failure,
        place.store.open(meta.key, etag=meta.etag),
    ):
        pass
    assert failure.value.retryable


def test_an_object_written_anew_gets_another_etag(place: Place) -> None:
    place.store.write(place.prefix + "a", b"old")
    [before] = place.listed()

    place.store.write(before.key, b"new")

    [after] = place.listed()
    assert after.etag != before.etag


def test_a_read_never_mixes_an_old_object_with_a_new_one(place: Place) -> None:
    old = b"o" * 1_000_000
    place.store.write(place.prefix + "a", old)
    [meta] = place.listed()

    try:
        with place.store.open(meta.key, etag=meta.etag) as stream:
            content = stream.read(10)
            place.store.write(meta.key, b"n" * 1_000_000)
            content += stream.read()
    except ObjectChangedError:
        content = old

    assert content == old


def test_a_missing_object_is_told_from_a_changed_one(place: Place) -> None:
    key = place.prefix + "gone"

    with pytest.raises(ObjectMissingError) as failure, place.store.open(key, etag="any"):
        pass
    with pytest.raises(ObjectMissingError):
        place.store.read_bytes(key)

    assert failure.value.retryable
    assert not place.store.exists(key)


def test_a_key_that_is_taken_is_not_written_again(place: Place) -> None:
    key = place.prefix + "a"

    answers = [place.store.write_new(key, b"first"), place.store.write_new(key, b"second")]

    assert answers == [True, False]
    assert place.store.read_bytes(key) == b"first"


def test_of_many_writers_of_a_new_key_exactly_one_wins(place: Place) -> None:
    key = place.prefix + "a"
    contents = [str(number).encode() * 10_000 for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(lambda content: place.store.write_new(key, content), contents)
        )

    assert answers.count(True) == 1
    assert place.store.read_bytes(key) == contents[answers.index(True)]


def test_a_store_survives_pickling(place: Place) -> None:
    place.put("a")

    revived = pickle.loads(pickle.dumps(place.store))  # noqa: S301 (our own bytes)

    assert revived.read_bytes(place.prefix + "a") == b"a"
