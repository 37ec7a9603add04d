"""Servers that are unreachable, slow, failing or silent: rows are loaded once, and soon."""

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, ExternalError
from penstock.sources.files.kind import FILES
from penstock.storage import bucket, bucket_clients
from penstock.storage import bucket as bucket_stream
from penstock.tables.rejects import reject_columns
from tests.error_values import assert_names, assert_reason, raises
from tests.integration.bucket_jobs import (
    FastClock,
    access,
    bucket_ids,
    bucket_job,
    bucket_node,
    chain,
    ids,
    put_rows,
    read_in_bucket,
    secret,
)
from tests.integration.driving import (
    attempts,
    idle,
    paused,
    rounds_until,
    supervised,
)
from tests.node import CREATE_TABLE, Node
from tests.servers.proxy import (
    Delay,
    Fault,
    LoseResponse,
    Proxied,
    Request,
    Respond,
    TruncateBody,
    When,
    listing,
    method,
    refusal,
    slow_down,
)

pytestmark = pytest.mark.integration

OUTAGE_SECONDS = 10
OFTEN = [("max_interval", "1")]


@pytest.fixture
def fast_node(tmp_path: Path) -> Iterator[Node]:
    opened = Node(tmp_path / "home", clock=FastClock())
    yield opened
    opened.catalog.close()


@pytest.fixture
def stored(proxied: Proxied, tmp_path: Path) -> Iterator[Node]:
    """A node whose tables are in the bucket with the proxy."""
    with bucket_node(tmp_path / "home", proxied.bucket) as node:
        yield node


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_stream, "PIECE_BYTES", 16_384)


def test_an_outage_of_ten_seconds_only_delays_a_job(stored: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket, properties=OFTEN)}")

    with supervised(stored) as supervisor:
        rounds_until(supervisor, idle)
        generation = stored.job("j").generation
        proxied.proxy.down()
        back = threading.Timer(OUTAGE_SECONDS, proxied.proxy.up)
        back.start()
        put_rows(proxied.direct, "in/2.json", 2)
        rounds_until(supervisor, lambda _: stored.show("j")["rows_loaded"] == 2)
        back.join()

    assert bucket_ids(stored, proxied.direct) == [1, 2]
    assert stored.job("j").generation == generation
    assert attempts(stored) == [(1, 1, "COMMITTED"), (2, 1, "COMMITTED")]


def test_a_long_outage_pauses_a_job_that_resumes_by_itself(
    fast_node: Node, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bucket_clients._RETRIES, "max_retries", 1)
    put_rows(proxied.direct, "in/1.json", 1)
    fast_node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.down()

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 1)
        move(fast_node, seconds=2)
        rounds_until(supervisor, paused)
        reason = str(fast_node.show("j")["reason"])
        proxied.proxy.up()
        move(fast_node, seconds=10)
        rounds_until(supervisor, idle)

    assert_reason(reason, Code.GET_REMOTE_DATA_ERROR, f'"s3://{proxied.bucket.name}/"')
    assert ids(fast_node) == [1]


def move(node: Node, **parts: float) -> None:
    assert isinstance(node.clock, FastClock)
    node.clock.move(**parts)


@pytest.mark.parametrize(
    "when",
    [listing, method("GET", path="in/"), method("PUT", path="wh/")],
    ids=["listing", "reading", "writing"],
)
def test_a_throttled_request_is_retried(stored: Node, proxied: Proxied, when: When) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.inject(slow_down(), when=when, times=4)

    stored.run()

    assert bucket_ids(stored, proxied.direct) == [1]
    assert attempts(stored) == [(1, 1, "COMMITTED")]


def test_slow_responses_are_tolerated(stored: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    for when in (listing, method("GET", path="in/"), method("PUT", path="_delta_log")):
        proxied.proxy.inject(Delay(seconds=0.5), when=when)

    stored.run()

    assert bucket_ids(stored, proxied.direct) == [1]
    assert attempts(stored) == [(1, 1, "COMMITTED")]


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("times", [1, 5])
def test_a_truncated_body_is_requested_again(node: Node, proxied: Proxied, times: int) -> None:
    put_rows(proxied.direct, "in/1.json", *range(3_000))
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.inject(
        TruncateBody(after_bytes=5_000), when=method("GET", path="in/1.json"), times=times
    )

    node.run()

    assert ids(node) == list(range(3_000))
    assert attempts(node) == [(1, 1, "COMMITTED")]


def test_a_truncated_listing_is_requested_again(node: Node, proxied: Proxied) -> None:
    for number in range(20):
        put_rows(proxied.direct, f"in/{number:02d}.json", number)
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.inject(TruncateBody(after_bytes=900), when=listing)

    node.run()

    assert ids(node) == list(range(20))


def test_revoked_keys_pause_a_job_until_the_secret_is_altered(
    fast_node: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    fast_node.sql(secret("s", access(proxied.bucket)))
    options = dict.fromkeys(access(proxied.bucket), "SECRET 's'")
    job = bucket_job(proxied.bucket, options=options, properties=OFTEN)
    fast_node.sql(f"{CREATE_TABLE}; {job}")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, idle)
        put_rows(proxied.direct, "in/2.json", 2)
        fast_node.sql("ALTER SECRET s ('s3.secret_key' = 'revoked')")
        rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 1)
        move(fast_node, seconds=2)
        rounds_until(supervisor, paused)
        reason = str(fast_node.show("j")["reason"])
        fast_node.sql(f"ALTER SECRET s ('s3.secret_key' = '{proxied.bucket.secret_key}')")
        move(fast_node, seconds=10)
        rounds_until(supervisor, lambda _: fast_node.show("j")["rows_loaded"] == 2)

    assert_reason(reason, Code.GET_REMOTE_DATA_ERROR, "refused")
    assert "revoked" not in reason
    assert ids(fast_node) == [1, 2]


def test_changed_warehouse_keys_are_used_by_a_running_job(
    proxied: Proxied, tmp_path: Path
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    with bucket_node(tmp_path / "home", proxied.bucket, clock=FastClock()) as node:
        node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket, properties=OFTEN)}")
        with supervised(node) as supervisor:
            rounds_until(supervisor, idle)
            put_rows(proxied.direct, "in/2.json", 2)
            node.sql("ALTER SECRET wh ('s3.secret_key' = 'revoked')")
            rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 1)
            move(node, seconds=2)
            rounds_until(supervisor, paused)
            reason = str(node.show("j")["reason"])
            node.sql(f"ALTER SECRET wh ('s3.secret_key' = '{proxied.bucket.secret_key}')")
            move(node, seconds=10)
            rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)

        assert "revoked" not in reason
        assert bucket_ids(node, proxied.direct) == [1, 2]


def test_wrong_keys_of_a_task_are_not_retried(node: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.clear()
    proxied.proxy.inject(
        refusal(403, "AccessDenied", "not you"), when=method("GET", path="in/"), times=1
    )

    node.run()

    assert proxied.proxy.gets("in/1.json") == 2
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    assert ids(node) == [1]


LOG = "_delta_log/0000000000000000000"


def put_of(path: str) -> When:
    """Match the PUT of an object, or of the last part of a large object."""
    return method("PUT", path=path)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "path",
    [f"{LOG}2.json", f"{LOG}3.json", "_penstock/", "part-"],
    ids=["fence", "epoch", "copy", "parquet"],
)
def test_a_lost_response_to_a_write_of_a_load_changes_nothing(
    stored: Node, proxied: Proxied, path: str, times: int
) -> None:
    put_rows(proxied.direct, "in/1.json", 1, 2)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.inject(LoseResponse(), when=put_of(path), times=times)

    stored.run()

    assert bucket_ids(stored, proxied.direct) == [1, 2]
    assert chain(stored) == [(1, "opening"), (2, "fence"), (3, "epoch")]
    assert stored.sql("DESCRIBE DETAIL t")[0]["version"] == 3
    assert attempts(stored) == [(1, 1, "COMMITTED")]


def test_a_lost_response_to_the_opening_commit_is_recognised(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(CREATE_TABLE)
    proxied.proxy.inject(LoseResponse(), when=put_of(f"{LOG}1.json"))

    stored.sql(bucket_job(proxied.bucket))

    assert stored.sql("DESCRIBE DETAIL t")[0]["version"] == 1
    stored.run()
    assert chain(stored) == [(1, "opening"), (2, "fence"), (3, "epoch")]
    assert bucket_ids(stored, proxied.direct) == [1]


def test_a_table_is_usable_although_the_response_to_its_creation_was_lost(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    proxied.proxy.inject(LoseResponse(), when=put_of(f"{LOG}0.json"))

    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    stored.run()

    assert bucket_ids(stored, proxied.direct) == [1]
    assert chain(stored) == [(1, "opening"), (2, "fence"), (3, "epoch")]


def test_a_lost_response_to_the_fence_of_a_pause_is_recognised(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    stored.run()
    proxied.proxy.inject(LoseResponse(), when=put_of(f"{LOG}4.json"))

    stored.sql("PAUSE JOB j")

    assert chain(stored)[-1] == (4, "fence")
    assert stored.sql("DESCRIBE DETAIL t")[0]["version"] == 4
    assert stored.show("j")["state"] == "PAUSED"


def test_a_lost_response_to_the_closing_commit_is_recognised(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    stored.run()
    proxied.proxy.inject(LoseResponse(), when=put_of(f"{LOG}4.json"))

    stored.sql("DROP JOB j")

    assert stored.sql("SHOW JOBS") == []
    assert stored.sql("DESCRIBE DETAIL t")[0]["version"] == 4
    assert bucket_ids(stored, proxied.direct) == [1]


@pytest.mark.parametrize("path", [f"{LOG}0.json", f"{LOG}1.json", "part-"])
def test_a_lost_response_to_a_write_of_rejects_changes_nothing(
    stored: Node, proxied: Proxied, path: str
) -> None:
    proxied.direct.put("in/1.json", b'{"id": 1}\n{"id": "one"}\n')
    lenient = [("session.enable_insert_strict", "false")]
    options = {**access(proxied.bucket), "schema": "id BIGINT, note STRING"}
    job = bucket_job(proxied.bucket, options=options, properties=lenient)
    stored.sql(f"{CREATE_TABLE}; {job}")

    def of_rejects(request: Request) -> bool:
        return "/_rejects/" in request.path and put_of(path)(request)

    proxied.proxy.inject(LoseResponse(), when=of_rejects)
    stored.run()

    assert proxied.proxy.count(of_rejects)
    assert bucket_ids(stored, proxied.direct) == [1]
    assert stored.show("j")["rows_rejected"] == 1
    assert len(rejects(stored, proxied)) == 1


def test_a_refused_commit_of_rejects_does_not_show_keys_that_the_server_repeats(
    stored: Node, proxied: Proxied
) -> None:
    assert stored.tables is not None
    opened = stored.tables.open_rejects("job-1", reject_columns(FILES.place_columns))
    echo = b"<Error><Code>InvalidAccessKeyId</Code><Message>AKIACANARY</Message></Error>"
    proxied.proxy.inject(Respond(status=403, body=echo), when=put_of(f"{LOG}1.json"), times=10)

    with raises(ExternalError, Code.TABLE_ERR, "rejects", "commit 1") as refused:
        opened.commit(1, ())

    assert_names(refused.value.detail, "403", "InvalidAccessKeyId")


def rejects(node: Node, proxied: Proxied) -> list[dict[str, Any]]:
    """Return the rejects of the job, read by deltalake."""
    location = proxied.bucket.uri(f"wh/_rejects/{node.job('j').id}")
    return read_in_bucket(location, proxied.direct)


def test_a_write_that_arrives_after_a_pause_never_becomes_visible(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    sent = late_write(proxied, f"{LOG}3.json")

    with supervised(stored) as supervisor:
        rounds_until(supervisor, lambda _: sent.is_set())
        stored.sql("PAUSE JOB j")
        rows_at_pause = bucket_ids(stored, proxied.direct)
        rounds_until(supervisor, paused)
    rows_later = bucket_ids(stored, proxied.direct)
    stored.sql("RESUME JOB j")
    stored.run()

    assert (rows_at_pause, rows_later) == ([], [])
    assert bucket_ids(stored, proxied.direct) == [1]
    assert [kind for _, kind in chain(stored)] == [
        "opening",
        "fence",
        "fence",
        "fence",
        "epoch",
    ]


def test_a_write_that_arrives_after_a_takeover_never_becomes_visible(
    stored: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    sent = late_write(proxied, f"{LOG}3.json")
    other = replace(stored, node_id="node-2", tables=None)

    with supervised(stored) as supervisor:
        rounds_until(supervisor, lambda _: sent.is_set())
        other.run()
        rounds_until(supervisor, lambda _: bool(supervisor.pop_lost_jobs()))

    assert bucket_ids(stored, proxied.direct) == [1]
    numbers = [number for number, _ in chain(stored)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [kind for _, kind in chain(stored)].count("epoch") == 1
    other.catalog.close()


def late_write(proxied: Proxied, path: str, *, seconds: float = 2.0) -> threading.Event:
    """Delay the next write of an object; set the returned event when the write is sent."""
    sent = threading.Event()
    wanted = put_of(path)

    def when(request: Request) -> bool:
        if not wanted(request) or sent.is_set():
            return False
        sent.set()
        return True

    proxied.proxy.inject(Delay(seconds=seconds), when=when)
    return sent


def part_sent(request: Request) -> bool:
    """Match the upload of one part of a large object."""
    return request.method == "PUT" and "partNumber" in request.parameters


def parts_joined(request: Request) -> bool:
    """Match the request that completes a multipart upload."""
    return request.method == "POST" and "uploadId" in request.parameters


@pytest.mark.parametrize(
    ("fault", "when"),
    [(LoseResponse(), part_sent), (LoseResponse(), parts_joined), (slow_down(), parts_joined)],
    ids=["lost-part", "lost-joining", "slow-joining"],
)
def test_a_multipart_upload_survives_the_failure_of_one_part(
    stored: Node, proxied: Proxied, monkeypatch: pytest.MonkeyPatch, fault: Fault, when: When
) -> None:
    monkeypatch.setattr(bucket, "_PART_BYTES", SMALLEST_PART_BYTES)
    proxied.direct.put("in/1.json", random_lines())
    stored.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.inject(fault, when=when)

    stored.run()

    assert proxied.proxy.count(part_sent) >= 4
    assert bucket_ids(stored, proxied.direct) == list(range(RANDOM_ROWS))
    assert chain(stored) == [(1, "opening"), (2, "fence"), (3, "epoch")]


SMALLEST_PART_BYTES = 5 * 2**20
RANDOM_ROWS = 130_000


@cache
def random_lines() -> bytes:
    """Return rows that compress badly, enough for two tasks."""
    notes = (secrets.token_urlsafe(90) for _ in range(RANDOM_ROWS))
    lines = (f'{{"id": {number}, "note": "{note}"}}\n' for number, note in enumerate(notes))
    return "".join(lines).encode()
