"""Parts of stores that the tests of all stores begin with."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.storage.bucket import BucketStore
from penstock.storage.local import LocalStore
from penstock.storage.options import StoreOptions
from penstock.storage.store import ObjectMeta, Store
from penstock.storage.uris import Scheme
from tests.servers.buckets import REGION, Bucket
from tests.servers.containers import Container
from tests.servers.google import GoogleBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An empty part of a store: keys begin with the prefix, which ends with a slash.

    The rest is what is true of some stores only.
    """

    store: Store
    prefix: str
    in_byte_order: bool = True
    # In what encoding of the keys this order is the one of the bytes.
    encoding: str = "utf-8"
    # Folders are made, may be missing, and are there without anything in them.
    folders: bool = False
    # An object without a byte is a file like any other.
    empty_files: bool = False
    # A new object has its key from the beginning, and is refused one that is taken.
    key_from_the_beginning: bool = False
    # Asking costs requests.
    costly: bool = True
    # Parts of an object that is never finished stay until the store's own rules remove them.
    sent_parts_stay: bool = True
    # What was begun and is neither finished nor gone, though nobody sees it.
    unfinished: Callable[[], list[str]] = list

    def put(self, *names: str) -> None:
        for name in names:
            self.store.write(self.prefix + name, name.encode())

    def put_many(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(self.put, names))

    def listed(self, below: str = "", *, after: str = "") -> list[ObjectMeta]:
        behind = self.prefix + after if after else ""
        return list(self.store.list(self.prefix + below, selection=All(), after=behind))

    def names(self, below: str = "", *, after: str = "") -> list[str]:
        return [meta.key.removeprefix(self.prefix) for meta in self.listed(below, after=after)]

    def folder(self, name: str) -> str:
        self.store.make_folder(self.prefix + name)
        return self.prefix + name


class All:
    """Wants every key."""

    def matches(self, _key: str) -> bool:
        return True

    def may_contain(self, _folder: str) -> bool:
        return True


def local_place(folder: Path) -> Place:
    return Place(
        store=LocalStore(),
        prefix=f"{folder}/",
        folders=True,
        empty_files=True,
        key_from_the_beginning=True,
        costly=False,
        sent_parts_stay=False,
    )


def bucket_place(bucket: Bucket, *, in_byte_order: bool) -> Place:
    def unfinished() -> list[str]:
        answer = bucket.client.list_multipart_uploads(Bucket=bucket.name)
        return [upload["Key"] for upload in answer.get("Uploads", ())]

    return Place(
        store=store_of(bucket),
        prefix="some/place/",
        in_byte_order=in_byte_order,
        unfinished=unfinished,
    )


def container_place(container: Container) -> Place:
    options = StoreOptions(
        endpoint=container.endpoint,
        access_key=container.access_key,
        secret_key=container.secret_key,
    )
    return Place(
        store=BucketStore(scheme=Scheme.AZ, bucket=container.name, options=options),
        prefix="some/place/",
        encoding="utf-16-be",
        # Nothing is begun that could be listed; what was sent is forgotten after a week.
        sent_parts_stay=False,
    )


def google_place(bucket: GoogleBucket) -> Place:
    options = StoreOptions(service_account=bucket.account)
    store = BucketStore(scheme=Scheme.GS, bucket=bucket.name, options=options)
    return replace(bucket_place(bucket.direct, in_byte_order=True), store=store)


def store_of(bucket: Bucket) -> BucketStore:
    options = StoreOptions(
        endpoint=bucket.endpoint,
        region=REGION,
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
    )
    return BucketStore(scheme=Scheme.S3, bucket=bucket.name, options=options)
