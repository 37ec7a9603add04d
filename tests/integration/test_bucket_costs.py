"""Number and kind of requests to a bucket: requests cost money, keys cost memory."""

import threading
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.clock import Clock, SystemClock
from penstock.sources.registry import Sources
from penstock.sources.source import Poll, Source
from penstock.storage import bucket as bucket_stream
from tests.contract.catalog.building import MovableClock
from tests.integration.bucket_jobs import (
    PAGE_KEYS,
    FastClock,
    Pages,
    access,
    bucket_job,
    ids,
    json_lines,
    page_server,
    paged_key,
    put_many,
    put_rows,
    remember_loaded,
    through_proxy,
)
from tests.integration.driving import idle, paused, rounds_until, supervised
from tests.node import CREATE_TABLE, Node
from tests.servers.buckets import Bucket
from tests.servers.proxy import Proxied, listing, refusal

pytestmark = pytest.mark.integration


@pytest.fixture
def fast_node(tmp_path: Path) -> Iterator[Node]:
    opened = Node(tmp_path / "home", clock=FastClock())
    yield opened
    opened.catalog.close()


def ordered(bucket: Bucket, **options: str) -> dict[str, str]:
    return {**access(bucket), "ordered_listing": "true", **options}


def source_of(node: Node, clock: Clock | None = None) -> Source:
    """Open the job's source as its runner does."""
    sources = Sources(catalog=node.catalog, vault=node.vault, clock=clock or SystemClock())
    return sources.open(node.job("j"), threading.Event())


def waiting_files(node: Node, source: Source) -> int | None:
    """Poll for new files, and return the number of waiting files."""
    return poll(node, source).waiting.items


def poll(node: Node, source: Source) -> Poll:
    return source.poll(node.job("j").progress, report=lambda _: None)


@pytest.mark.parametrize("loaded", [100, 5_000, 1_000_000])
def test_an_idle_poll_of_an_ordered_store_is_one_request(
    node: Node, moto_bucket: Bucket, loaded: int
) -> None:
    put_rows(moto_bucket, "in/00.json", 1)
    with through_proxy(moto_bucket) as proxied:
        job = bucket_job(proxied.bucket, options=ordered(proxied.bucket))
        node.sql(f"{CREATE_TABLE}; {job}")
        node.run()
        remember_loaded(node, keys=loaded)
        source = source_of(node)
        waiting_files(node, source)
        proxied.proxy.clear()

        found = waiting_files(node, source)

    (request,) = proxied.proxy.requests
    assert found == 0
    assert request.listing
    assert request.parameters["start-after"] == paged_key(loaded - 1)


def test_an_idle_poll_is_one_request_per_prefix(node: Node, moto_bucket: Bucket) -> None:
    for name in ("a", "b", "c"):
        put_rows(moto_bucket, f"{name}/1.json", 1)
    with through_proxy(moto_bucket) as proxied:
        options = ordered(proxied.bucket)
        job = bucket_job(proxied.bucket, "{a,b,c}/**/*.json", options=options)
        node.sql(f"{CREATE_TABLE}; {job}")
        node.run()
        source = source_of(node)
        waiting_files(node, source)
        proxied.proxy.clear()

        waiting_files(node, source)

    starts = [r.parameters["start-after"] for r in proxied.proxy.requests]
    assert starts == ["a/1.json", "b/1.json", "c/1.json"]


def test_an_audit_of_thousands_of_keys_finds_the_key_that_is_not_loaded(
    node: Node, proxied: Proxied
) -> None:
    put_rows(proxied.direct, "in/00000000.json", 0)
    options = ordered(proxied.bucket)
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket, options=options)}")
    put_many(proxied.direct, map(paged_key, range(5_000)), json_lines(0))
    put_rows(proxied.direct, "in/00002345.late.json", 7)
    remember_loaded(node, keys=5_000)
    proxied.proxy.clear()

    source = source_of(node)
    found = poll(node, source)

    assert found.waiting.items == 1
    assert proxied.proxy.listings() == len(proxied.proxy.requests) == 6
    assert source.take_requests() == 6
    assert found.notices == (("files_modified", 5_000),)
    node.run()
    assert ids(node) == [7]


def test_requests_per_hour_equal_the_requests_at_the_server(
    node: Node, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_stream, "PIECE_BYTES", 1_000)
    put_rows(proxied.direct, "in/1.json", 1)
    put_rows(proxied.direct, "in/2.json", *range(2, 202))
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.clear()
    node.run()
    first = (node.show("j")["requests_per_hour"], len(proxied.proxy.requests))

    put_rows(proxied.direct, "in/3.json", 202)
    again = node.restart()
    again.run()

    assert proxied.proxy.gets("in/2.json") > 5
    assert first[0] == first[1]
    assert again.show("j")["requests_per_hour"] == len(proxied.proxy.requests)
    assert ids(again) == list(range(1, 203))
    again.catalog.close()


def test_requests_of_a_failed_poll_are_counted(node: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.clear()
    proxied.proxy.inject(refusal(403, "AccessDenied", "not now"), when=listing)

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)

    assert proxied.proxy.listings() >= 2
    assert node.show("j")["requests_per_hour"] == len(proxied.proxy.requests)


def test_requests_of_a_failed_task_are_counted(node: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    proxied.direct.put("in/2.json", b"no json\n")
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    proxied.proxy.clear()

    with supervised(node) as supervisor:
        rounds_until(supervisor, paused)

    assert proxied.proxy.gets("in/")
    assert node.show("j")["requests_per_hour"] == len(proxied.proxy.requests)


def test_requests_older_than_an_hour_are_not_counted(fast_node: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    fast_node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket)}")
    fast_node.run()
    assert isinstance(fast_node.clock, FastClock)
    fast_node.clock.move(hours=2)
    proxied.proxy.clear()

    fast_node.run()

    assert fast_node.show("j")["requests_per_hour"] == len(proxied.proxy.requests)


def test_a_request_budget_reduces_the_number_of_polls(node: Node, proxied: Proxied) -> None:
    put_rows(proxied.direct, "in/1.json", 1)
    options = {**access(proxied.bucket), "request_budget": "120"}
    node.sql(f"{CREATE_TABLE}; {bucket_job(proxied.bucket, options=options)}")
    node.run()
    clock = MovableClock()
    source = source_of(node, clock)
    started_at = clock.now()
    proxied.proxy.clear()

    while clock.now() < started_at + timedelta(hours=1):
        waiting_files(node, source)
        clock.move(seconds=max(1.0, source.poll_delay().total_seconds()))

    assert 110 <= len(proxied.proxy.requests) <= 122


def test_an_exhausted_request_budget_slows_a_job_but_never_fails_it(
    fast_node: Node, proxied: Proxied
) -> None:
    for number in range(20):
        put_rows(proxied.direct, f"in/{number}.json", number)
    options = {**access(proxied.bucket), "request_budget": "2"}
    often = [("max_interval", "1"), ("s3.max_batch_files", "5")]
    job = bucket_job(proxied.bucket, options=options, properties=often)
    fast_node.sql(f"{CREATE_TABLE}; {job}")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, idle)
        state = fast_node.show("j")["state"]

    assert isinstance(fast_node.clock, FastClock)
    assert state == "RUNNING"
    assert ids(fast_node) == list(range(20))
    assert max(fast_node.clock.runner_waits) > timedelta(minutes=30)


@pytest.mark.parametrize(("listing_order", "many"), [("true", 100_000), ("false", 30_000)])
def test_polling_many_keys_needs_no_more_memory_than_polling_few(
    node: Node, listing_order: str, many: int
) -> None:
    few = 10_000
    pages = Pages(keys=1)
    with page_server(pages) as bucket:
        options = ordered(
            bucket, ordered_listing=listing_order, schema="id BIGINT, note STRING"
        )
        node.sql(f"{CREATE_TABLE}; {bucket_job(bucket, options=options)}")
        remember_loaded(node, keys=many)
        peak_bytes: dict[int, int] = {}
        # The first poll fills caches of libraries and does not count.
        for pages.keys in (few, few, many):
            tracemalloc.start()
            assert waiting_files(node, source_of(node)) == 0
            peak_bytes[pages.keys] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()

    assert pages.requests > (2 * few + many) // PAGE_KEYS
    assert peak_bytes[many] < peak_bytes[few] + 1_000_000
