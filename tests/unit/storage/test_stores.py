"""URIs: the store and pattern of each URI, and errors for wrong URIs."""

import pytest

from penstock.errors import Code, UserError
from penstock.storage.bucket import BucketStore
from penstock.storage.local import LocalStore
from penstock.storage.options import StoreOptions
from penstock.storage.store import open_store
from penstock.storage.uris import Scheme, parse_uri
from tests.error_values import assert_names


@pytest.mark.parametrize(
    ("uri", "pattern"),
    [
        ("file:///data/in/*.json", "/data/in/*.json"),
        ("FILE:///data/in/", "/data/in/"),
        ("file:///", "/"),
        ("file:///in/{1..3}/[ab]?.json", "/in/{1..3}/[ab]?.json"),
        ("file:///in/100%25#1?.json", "/in/100%25#1?.json"),
        ("file:///in/.hidden/..a", "/in/.hidden/..a"),
    ],
)
def test_a_file_uri_names_a_path_literally(uri: str, pattern: str) -> None:
    store, found = open_store(uri)

    assert store == LocalStore()
    assert found == pattern


@pytest.mark.parametrize(
    ("uri", "scheme", "bucket", "pattern"),
    [
        ("s3://bucket/in/*.json", Scheme.S3, "bucket", "in/*.json"),
        ("S3://bucket/in/", Scheme.S3, "bucket", "in/"),
        ("s3a://my.own-bucket_1/a", Scheme.S3, "my.own-bucket_1", "a"),
        ("s3n://bucket/a", Scheme.S3, "bucket", "a"),
        ("gs://bucket/in/*.json", Scheme.GS, "bucket", "in/*.json"),
        ("az://bucket/in/*.json", Scheme.AZ, "bucket", "in/*.json"),
        ("s3://bucket/in/{1..3}/[ab]?.json", Scheme.S3, "bucket", "in/{1..3}/[ab]?.json"),
        ("s3://bucket/in/100%25#1?.json", Scheme.S3, "bucket", "in/100%25#1?.json"),
        ("s3://bucket/in/.hidden/..a", Scheme.S3, "bucket", "in/.hidden/..a"),
        ("s3://bucket", Scheme.S3, "bucket", ""),
        ("s3://bucket/", Scheme.S3, "bucket", ""),
        ("s3://abc/x", Scheme.S3, "abc", "x"),
        (f"s3://{'b' * 63}/x", Scheme.S3, "b" * 63, "x"),
    ],
)
def test_a_uri_of_a_bucket_names_its_keys_literally(
    uri: str, scheme: Scheme, bucket: str, pattern: str
) -> None:
    options = StoreOptions(region="eu-central-1")

    store, found = open_store(uri, options)

    assert store == BucketStore(scheme=scheme, bucket=bucket, options=options)
    assert store.requests == 0
    assert found == pattern


@pytest.mark.parametrize(
    "uri", ["file:///data/in/*.json", "s3://bucket/in/*.json", "gs://bucket", "az://bucket/a"]
)
def test_a_parsed_uri_is_printed_unchanged(uri: str) -> None:
    assert str(parse_uri(uri)).removesuffix("/") == uri


@pytest.mark.parametrize(
    "bucket", ["", "b", "ab", "b" * 64, "Bucket", "-bucket", "bucket-", "my bucket", "b%20b"]
)
def test_a_uri_without_the_name_of_a_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(UserError) as refusal:
        open_store(f"s3://{bucket}/in/*.json")

    uri = f"s3://{bucket}/in/*.json"
    assert_names(refusal.value.message, f'"{uri}"', "s3://", f'"{bucket}"')
    assert_names(refusal.value.detail, "3", "63")
    assert refusal.value.code is Code.OPTION_ERR


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("/data/in/*.json", ('"/data/in/*.json"', "file://", "s3://")),
        ("data/*.json", ('"data/*.json"', "file://", "s3://")),
        ("file:/data", ('"file:/data"', "file://", "s3://")),
        ("", ('""', "file://", "s3://")),
        ("s3:bucket/a", ('"s3:bucket/a"', "file://", "s3://")),
        (
            "ftp://host/a",
            ('"ftp://host/a"', "file://", "s3://", "gs://", "az://", "ftp://"),
        ),
        (
            "file://host/a",
            ('"file://host/a"', "file://"),
        ),
        ("file://", ('"file://"', "file://")),
        ("file:///a/../b", ('"/a/../b"', '"."', '".."')),
        ("file:///a/./b", ('"/a/./b"', '"."', '".."')),
        ("file:///a//b", ('"/a//b"', '"."', '".."')),
        ("file:///a//", ('"/a//"', '"."', '".."')),
        ("file:///a\0b", ('"/a\\0b"', "Unicode", "NUL")),
        ("file:///a\ud800b", ('"/a\\ud800b"', "Unicode", "NUL")),
        ("s3://bucket/a/../b", ('"a/../b"', '"."', '".."')),
        ("s3://bucket/./b", ('"./b"', '"."', '".."')),
        ("s3://bucket/a//b", ('"a//b"', '"."', '".."')),
        ("s3://bucket//b", ('"/b"', '"."', '".."')),
        ("s3://bucket/a//", ('"a//"', '"."', '".."')),
        ("s3://bucket/a\0b", ('"a\\0b"', "Unicode", "NUL")),
        ("s3://bucket/a\ud800b", ('"a\\ud800b"', "Unicode", "NUL")),
    ],
)
def test_a_uri_that_names_no_path_is_refused(uri: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as refusal:
        open_store(uri)

    assert_names(refusal.value.message, *named)
    assert refusal.value.code is Code.OPTION_ERR
