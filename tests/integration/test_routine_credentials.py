"""Who asks a stream: keys, session tokens, roles and the chain, seen where requests arrive."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.aws.credentials import credentials_for
from penstock.errors import ExternalError
from penstock.sources.kinesis.client import CLIENTS
from tests.integration.bucket_jobs import Sts, bare_aws, sts_server, write_profile
from tests.integration.driving import Failing, MovedClock, attempts
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    create,
    ids,
    loads,
    put,
    server,
    shards,
    stream,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis.request_log import LoggedRequest
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, new_stream
from tests.servers.moto import MotoServer

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_aws(monkeypatch, tmp_path)


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    """A server that lends keys of roles, where clients look for AWS's own."""
    lending = Sts()
    with sts_server(lending) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        yield lending


@pytest.fixture
def opened(open_node: OpenNode) -> Callable[[Callable[[], None]], Node]:
    """Opens a Penstock with a table, whose first task does something else before it reads."""

    def open_one(first: Callable[[], None]) -> Node:
        node = open_node(clock=MovedClock(), read_interval=BLINK, work=Failing(first))
        node.sql(CREATE_TABLE)
        return node

    return open_one


def asked(server: KinesisServer, operation: str = "") -> list[LoggedRequest]:
    """Answer what the product has asked; what the test itself puts is signed otherwise."""
    return [one for one in server.control.requests(operation) if one.access_key_id != "test"]


def forget_what_is_kept() -> None:
    """Be a process that has asked for nothing yet, as a worker is."""
    CLIENTS.close()
    credentials_for.cache_clear()


def test_t81_a_session_token_goes_with_every_request(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream, aws__session_key="token-of-an-hour"))

    loads.run()

    assert {one.session_token for one in asked(server)} == {"token-of-an-hour"}
    assert {one.access_key_id for one in asked(server)} == {"mine"}
    assert ids(loads) == [1]


def test_t82_a_role_is_assumed_where_roles_are_and_not_at_the_endpoint_of_the_stream(
    loads: Node,
    server: KinesisServer,
    stream: StreamUnderTest,
    *,
    moto: MotoServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    put(stream, 1)
    loads.sql(create(stream, aws__role_arn=ROLE))

    loads.run()

    assert {one.access_key_id[:4] for one in asked(server)} == {"ASIA"}
    assert all(one.session_token for one in asked(server))
    assert {one.code for one in asked(server)} == {""}
    assert ids(loads) == [1]


def test_t81_a_role_is_asked_for_with_its_external_id(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, sts: Sts
) -> None:
    loads.sql(create(stream, aws__role_arn=ROLE, property__aws__external__id="shared word"))

    assert (sts.asked[0]["RoleArn"], sts.asked[0]["ExternalId"]) == (ROLE, "shared word")
    assert {one.session_token for one in asked(server)} == {"token-1"}


@pytest.mark.usefixtures("sts")
def test_t81_a_worker_assumes_the_role_itself(
    opened: Callable[[Callable[[], None]], Node], server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    node = opened(forget_what_is_kept)
    node.sql(create(stream, aws__role_arn=ROLE))

    node.run()

    tokens = [one.session_token for one in asked(server, "GetRecords") if one.records]
    assert tokens == ["token-1", "token-2"]
    assert ids(node) == [1]


def test_t81_keys_of_a_role_that_expire_while_a_task_reads_are_renewed(
    opened: Callable[[Callable[[], None]], Node],
    server: KinesisServer,
    stream: StreamUnderTest,
    sts: Sts,
) -> None:
    put(stream, 1, 2, 3, 4, 5)
    node = opened(lambda: server.control.refuse("token-1", after_calls=2))
    # So a task sends one request for every record.
    node.sql(create(stream, aws__role_arn=ROLE, property__aws__kinesis__max_records="1"))

    node.run()

    taken = [one.session_token for one in asked(server, "GetRecords") if one.records][1:]
    assert taken == ["token-1", "token-1", "token-2", "token-2", "token-2"]
    assert len(sts.asked) == 2
    assert ids(node) == [1, 2, 3, 4, 5]
    assert attempts(node, "r") == [(1, 1, "COMMITTED")]


def test_t81_keys_of_a_role_that_are_about_to_end_are_renewed_before_they_do(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, sts: Sts
) -> None:
    sts.life = timedelta(seconds=30)
    put(stream, 1)
    loads.sql(create(stream, aws__role_arn=ROLE))

    loads.run()

    assert len({one.session_token for one in asked(server)}) > 1
    assert {one.code for one in asked(server)} == {""}
    assert ids(loads) == [1]


def test_t81_a_role_that_is_refused_makes_no_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, sts: Sts
) -> None:
    sts.refusing = True

    with pytest.raises(ExternalError, match=f'role "{ROLE}" could not be assumed') as refused:
        loads.sql(create(stream, aws__role_arn=ROLE))

    assert refused.value.message.endswith("could not be assumed: AccessDenied")
    assert asked(server) == []
    assert loads.sql("SHOW ALL ROUTINE LOAD") == []


def test_keys_that_are_not_given_come_from_the_chain(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, tmp_path: Path
) -> None:
    write_profile(tmp_path, "default", key="of-the-profile")
    put(stream, 1)
    loads.sql(create(stream, aws__access_key="", aws__secret_key=""))

    loads.run()

    assert {one.access_key_id for one in asked(server)} == {"of-the-profile"}
    assert ids(loads) == [1]


def test_a_provider_is_the_only_place_where_keys_are_looked_for(
    loads: Node,
    server: KinesisServer,
    stream: StreamUnderTest,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_profile(tmp_path, "default", key="of-the-profile")
    statement = create(
        stream,
        aws__access_key="",
        aws__secret_key="",
        property__aws__credentials__provider="env",
    )
    with pytest.raises(ExternalError, match="no credentials were found") as refused:
        loads.sql(statement)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    put(stream, 1)

    loads.sql(statement)
    loads.run()

    assert refused.value.detail == "Asked: env."
    assert {one.access_key_id for one in asked(server)} == {"of-the-environment"}
    assert ids(loads) == [1]


def test_t82_all_pages_of_a_stream_that_is_named_by_its_arn_are_listed(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=3)
    put(wide, 1)
    loads.sql(
        create(
            wide,
            property__aws__kinesis__stream_arn=wide.arn,
            property__aws__kinesis__max_results="1",
        )
    )

    loads.run()

    assert {one.code for one in asked(server)} == {""}
    assert len(shards(loads)) == 3
    assert ids(loads) == [1]
