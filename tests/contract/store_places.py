"""Empty prefixes in every kind of store, for the contract tests."""

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
    """An empty prefix of a store, which ends with a slash.

    The other fields describe the features that differ between stores.
    """

    store: Store
    prefix: str
    in_byte_order: bool = True
    # The encoding of keys that has the byte order of a listing.
    encoding: str = "utf-8"
    # Whether the store has folders, which can be created, missing or empty.
    folders: bool = False
    # Whether empty objects are listed.
    empty_files: bool = False
    # Whether a new object reserves its key at once, and an existing key is refused.
    key_reserved: bool = False
    # Whether calls send requests.
    remote: bool = True
    # Whether parts of an unfinished object stay until the store's own rules delete them.
    sent_parts_stay: bool = True
    # Returns the keys of unfinished uploads.
    unfinished: Callable[[], list[str]] = list

    def put(self, *names: str) -> None:
        for name in names:
            self.store.write(self.prefix + name, name.encode())

    def put_many(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(self.put, names))

    def listed(self, below: str = "", *, after: str = "") -> list[ObjectMeta]:
        after = self.prefix + after if after else ""
        return list(self.store.list(self.prefix + below, selection=All(), after=after))

    def names(self, below: str = "", *, after: str = "") -> list[str]:
        return [meta.key.removeprefix(self.prefix) for meta in self.listed(below, after=after)]

    def folder(self, name: str) -> str:
        self.store.create_folder(self.prefix + name)
        return self.prefix + name


class All:
    """Selects every key."""

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
        key_reserved=True,
        remote=False,
        sent_parts_stay=False,
    )


def bucket_place(bucket: Bucket, *, in_byte_order: bool) -> Place:
    def unfinished() -> list[str]:
        response = bucket.client.list_multipart_uploads(Bucket=bucket.name)
        return [upload["Key"] for upload in response.get("Uploads", ())]

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
        # Unfinished uploads cannot be listed; their parts are deleted after a week.
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
