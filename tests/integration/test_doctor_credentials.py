"""penstock doctor on credentials that are missing or not accepted."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.cli.doctor.examine import open_subject
from penstock.cli.doctor.home import check_secrets, check_warehouse
from penstock.cli.doctor.jobs import Probe, check_sources, send_all
from penstock.cli.doctor.report import Finding, Outcome, Subject
from tests.error_values import assert_names
from tests.integration.bucket_jobs import (
    access,
    bucket_job,
    bucket_node,
    put_rows,
    secret,
)
from tests.integration.routine_loads import create
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows
from tests.servers.buckets import Bucket
from tests.servers.kinesis_clients import StreamUnderTest
from tests.servers.proxy import Proxied

pytestmark = pytest.mark.integration

ACCESS, SECRET = "s3.access_key", "s3.secret_key"
SHORT = timedelta(milliseconds=1)
LONG = timedelta(minutes=1)


@contextmanager
def subject_of(node: Node, *, quick: bool) -> Iterator[Subject]:
    """Yield the home of a node as the subject of checks."""
    subject = open_subject(node.home, quick=quick)
    assert subject.app is not None
    try:
        yield subject
    finally:
        subject.app.close()


def secrets_found(node: Node) -> list[Finding]:
    """Return the findings about the secrets of a node."""
    with subject_of(node, quick=True) as subject:
        return list(check_secrets(subject))


def sources_found(node: Node, *, quick: bool = False) -> list[Finding]:
    """Return the findings about the sources of a node."""
    with subject_of(node, quick=quick) as subject:
        return list(check_sources(subject))


def of_secret(bucket: Bucket, name: str) -> dict[str, str]:
    """Return the options of a source whose keys are in a secret."""
    return {**access(bucket), ACCESS: f"secret:{name}", SECRET: f"secret:{name}"}


def keys_of(bucket: Bucket) -> dict[str, str]:
    """Return the access key and the secret key of a bucket."""
    return {key: value for key, value in access(bucket).items() if key in (ACCESS, SECRET)}


def test_a_secret_with_an_unset_variable_is_a_problem_without_its_values(node: Node) -> None:
    node.sql(
        "CREATE SECRET s ('s3.access_key' = 'AKIACANARY', 's3.secret_key' = 'env:NOT_SET')"
    )

    (found,) = secrets_found(node)

    assert found.outcome is Outcome.PROBLEM
    assert_names(found.found, '"NOT_SET"', '"s3.secret_key"', 'secret "s"')
    assert found.advice


def test_a_secret_with_an_unreadable_file_is_a_problem(node: Node, tmp_path: Path) -> None:
    node.sql(f"CREATE SECRET s (a = 'file:{tmp_path}/a', b = 'file:{tmp_path}/b', c = 'x')")
    (tmp_path / "b").write_text("CANARY")

    (found,) = secrets_found(node)

    assert found.outcome is Outcome.PROBLEM
    assert_names(found.found, f'"{tmp_path}/a"', '"a"', 'secret "s"')


def test_secrets_with_resolved_references_have_no_problem(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_KEY", "CANARY")
    node.sql("CREATE SECRET s ('s3.secret_key' = 'env:LAKE_KEY')")

    (found,) = secrets_found(node)

    assert found.outcome is Outcome.OK
    assert found.found.endswith(" decrypts them")


def test_local_files_are_not_probed(node: Node, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")

    (found,) = sources_found(node)

    assert found == Finding(check="sources", found="only local files")


def test_a_bucket_that_accepts_the_keys_of_a_job_responds(node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1)
    node.sql(f"{CREATE_TABLE}; {bucket_job(bucket)}")

    assert sources_found(node) == [Finding(check="sources", found="1 remote source responded")]


def test_a_bucket_that_rejects_the_keys_is_reported_with_the_job(
    node: Node, bucket: Bucket
) -> None:
    put_rows(bucket, "in/1.json", 1)
    node.sql(f"{secret('lake', keys_of(bucket))}; {CREATE_TABLE}")
    node.sql(bucket_job(bucket, options=of_secret(bucket, "lake")))
    node.sql("ALTER SECRET lake ('s3.access_key' = 'CANARY1', 's3.secret_key' = 'CANARY2')")

    (found,) = sources_found(node)

    assert (found.check, found.outcome) == ("source", Outcome.PROBLEM)
    assert_names(found.found, 'job "j"', f"s3://{bucket.name}/in/", "refused")
    assert "ALTER SECRET" in found.advice
    assert "CANARY" not in found.found + found.advice


def test_one_request_is_sent_to_a_bucket_and_none_if_quick(
    node: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.clear()

    quick = sources_found(node, quick=True)
    requests_if_quick = len(proxied.proxy.requests)
    sources_found(node)

    assert quick == [Finding(check="sources", found="1 remote source, not checked (--quick)")]
    assert requests_if_quick == 0
    (request,) = proxied.proxy.requests
    assert request.listing


def test_an_unset_variable_of_a_job_is_reported_even_if_quick(
    node: Node, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rows(bucket, "in/1.json", 1)
    monkeypatch.setenv("LAKE_KEY", keys_of(bucket)[SECRET])
    options = {**access(bucket), SECRET: "env:LAKE_KEY"}
    node.sql(f"{CREATE_TABLE}; {bucket_job(bucket, options=options)}")
    monkeypatch.delenv("LAKE_KEY")

    _, found = sources_found(node, quick=True)

    assert found.outcome is Outcome.PROBLEM
    assert_names(found.found, 'job "j"', f"s3://{bucket.name}/in/", '"LAKE_KEY"')
    assert_names(found.found, '"s3.secret_key"')


def test_a_deleted_stream_is_reported_with_its_routine_load(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    before = sources_found(loads)
    stream.client.delete_stream(StreamName=stream.name)

    (after,) = sources_found(loads)

    assert before == [Finding(check="sources", found="1 remote source responded")]
    assert_names(after.found, 'routine load "r"', stream.name, "ResourceNotFoundException")


def test_the_source_of_a_stopped_routine_load_is_not_probed(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(f"{create(stream)}; STOP ROUTINE LOAD FOR r")

    (found,) = sources_found(loads)

    assert found.found == "only local files"


def test_a_source_that_does_not_respond_in_time_is_reported(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    never = threading.Event()

    def silent() -> None:
        never.wait(LONG.total_seconds())

    probe = Probe(state=loads.job("r"), send=silent)
    (found,) = send_all([probe], wait=SHORT)

    never.set()
    assert_names(found.found, 'routine load "r"', "0 s")


def test_a_warehouse_in_a_bucket_is_not_probed_if_quick(
    proxied: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket_node(tmp_path / "home", proxied.bucket) as node:
        monkeypatch.setenv("PENSTOCK_WAREHOUSE", node.warehouse)
        monkeypatch.setenv("PENSTOCK_WAREHOUSE_SECRET", node.warehouse_secret)
        with subject_of(node, quick=True) as subject:
            (quick,) = check_warehouse(subject)
        requests_if_quick = len(proxied.proxy.requests)
        with subject_of(node, quick=False) as subject:
            (slow,) = check_warehouse(subject)

    assert quick.found == f"{node.warehouse}, not checked (--quick)"
    assert requests_if_quick == 0
    assert slow.found.endswith("is readable and writable; conditional writes work")
