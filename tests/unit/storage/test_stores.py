"""URIs: which store and which pattern they name, and which are refused."""

import pytest

from penstock.errors import Code, UserError
from penstock.storage.local import LocalStore
from penstock.storage.stores import open_store


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


@pytest.mark.parametrize("scheme", ["s3", "S3", "s3a", "gs", "az"])
def test_a_bucket_is_refused_as_not_supported_yet(scheme: str) -> None:
    with pytest.raises(UserError, match="is not supported yet, only file:// is") as refusal:
        open_store(f"{scheme}://bucket/in/*.json")

    assert refusal.value.code is Code.NOT_SUPPORTED_ERR


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/data/in/*.json", 'uri "/data/in/*.json" must begin with file://'),
        ("data/*.json", 'uri "data/*.json" must begin with file://'),
        ("file:/data", 'uri "file:/data" must begin with file://'),
        ("", 'uri "" must begin with file://'),
        ("ftp://host/a", 'uri "ftp://host/a" must begin with file://, not ftp://'),
        (
            "file://host/a",
            'uri "file://host/a" must go on with an absolute path after file://',
        ),
        ("file://", 'uri "file://" must go on with an absolute path after file://'),
        ("file:///a/../b", 'path "/a/../b" must not hold an empty part, "." or ".."'),
        ("file:///a/./b", 'path "/a/./b" must not hold an empty part, "." or ".."'),
        ("file:///a//b", 'path "/a//b" must not hold an empty part, "." or ".."'),
        ("file:///a//", 'path "/a//" must not hold an empty part, "." or ".."'),
        ("file:///a\0b", 'path "/a\\0b" must be Unicode text without NUL'),
        ("file:///a\ud800b", 'path "/a\\ud800b" must be Unicode text without NUL'),
    ],
)
def test_a_uri_that_names_no_absolute_path_is_refused(uri: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        open_store(uri)

    assert refusal.value.message == message
    assert refusal.value.code is Code.OPTION_ERR
