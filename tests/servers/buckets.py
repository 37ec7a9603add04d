"""One bucket on an S3 server, for tests."""

import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import boto3
from botocore.config import Config

REGION = "us-east-1"

_CONFIG = Config(
    connect_timeout=10,
    read_timeout=30,
    retries={"total_max_attempts": 1},
    s3={"addressing_style": "path"},
)


class StorageServer(Protocol):
    """The address of the buckets, and the keys."""

    @property
    def endpoint(self) -> str: ...
    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...


class AnyBucket(StorageServer, Protocol):
    """A bucket or a container, as the jobs of a test need it."""

    @property
    def storage_options(self) -> dict[str, str]: ...
    def put(self, key: str, content: bytes) -> None: ...
    def uri(self, path: str = "") -> str: ...


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket with its keys; close it to release its connections."""

    endpoint: str
    name: str
    access_key: str
    secret_key: str
    region: str = REGION

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        """Return an object's content."""
        response = self.client.get_object(Bucket=self.name, Key=key)
        with closing(response["Body"]) as body:
            content: bytes = body.read()
        return content

    def keys(self, prefix: str = "") -> list[str]:
        """Return all keys in the order of the server's listing."""
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for page in found for entry in page.get("Contents", ())]

    def delete(self, key: str) -> None:
        """Delete an object."""
        self.client.delete_object(Bucket=self.name, Key=key)

    def create_secret(self, name: str) -> str:
        """Return the statement that stores all options to access the bucket as a secret."""
        return (
            f"CREATE SECRET {name} ('s3.endpoint' = '{self.endpoint}', "
            f"'s3.region' = '{self.region}', 's3.access_key' = '{self.access_key}', "
            f"'s3.secret_key' = '{self.secret_key}')"
        )

    def uri(self, path: str = "") -> str:
        """Return the URI of a key or a prefix."""
        return f"s3://{self.name}/{path}"

    @property
    def storage_options(self) -> dict[str, str]:
        """The options of deltalake and Polars to open tables here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_ALLOW_HTTP": "true",
        }

    @cached_property
    def client(self) -> Any:
        """A client of this bucket without retries."""
        return open_client("s3", self)

    def close(self) -> None:
        """Close the connections to the server."""
        if "client" in self.__dict__:
            self.client.close()


def open_client(service: str, server: StorageServer) -> Any:
    """Return a new boto3 client of a service; the caller must close it."""
    return _session().client(
        service,
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=_CONFIG,
    )


@cache
def _session() -> Any:
    """Return one session for all clients, so that the service descriptions are read once."""
    return boto3.session.Session()


def create_bucket(server: StorageServer) -> Bucket:
    """Create a bucket with a new name."""
    bucket = Bucket(
        endpoint=server.endpoint,
        name=f"bucket-{uuid.uuid4().hex[:12]}",
        access_key=server.access_key,
        secret_key=server.secret_key,
    )
    bucket.client.create_bucket(Bucket=bucket.name)
    return bucket
