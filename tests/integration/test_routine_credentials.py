"""Credentials of streams: keys, session tokens, roles and the default chain."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.aws.credentials import credentials_for
from penstock.errors import Code, ExternalError
from penstock.sources.kinesis.client import CLIENTS
from tests.error_values import raises
from tests.integration.bucket_jobs import Sts, bare_aws, sts_server, write_profile
from tests.integration.driving import Failing, attempts
from tests.integration.routine_loads import Load, put
from tests.servers.kinesis.request_log import LoggedRequest
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import new_stream
from tests.servers.moto import MotoServer

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_aws(monkeypatch, tmp_path)


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    """An STS server at the address where clients expect the AWS server."""
    sts = Sts()
    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        yield sts


def requests_of(server: KinesisServer, operation: str = "") -> list[LoggedRequest]:
    """Return the product's requests; requests of the test itself have another key."""
    return [one for one in server.control.requests(operation) if one.access_key_id != "test"]


def clear_caches() -> None:
    """Clear cached credentials and clients, as in a new worker process."""
    CLIENTS.close()
    credentials_for.cache_clear()


def test_t81_a_session_token_is_sent_with_every_request(load: Load) -> None:
    load.put(1)
    load.create(aws__session_key="token-of-an-hour")

    load.run()

    assert {one.session_token for one in requests_of(load.server)} == {"token-of-an-hour"}
    assert {one.access_key_id for one in requests_of(load.server)} == {"mine"}
    assert load.ids() == [1]


def test_t82_a_role_is_assumed_at_sts_and_not_at_the_endpoint_of_the_stream(
    load: Load, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    load.put(1)
    load.create(aws__role_arn=ROLE)

    load.run()

    assert {one.access_key_id[:4] for one in requests_of(load.server)} == {"ASIA"}
    assert all(one.session_token for one in requests_of(load.server))
    assert {one.code for one in requests_of(load.server)} == {""}
    assert load.ids() == [1]


def test_t81_a_role_is_assumed_with_its_external_id(load: Load, sts: Sts) -> None:
    load.create(aws__role_arn=ROLE, property__aws__external__id="shared word")

    assert (sts.requests[0]["RoleArn"], sts.requests[0]["ExternalId"]) == (ROLE, "shared word")
    assert {one.session_token for one in requests_of(load.server)} == {"token-1"}


@pytest.mark.usefixtures("sts")
def test_t81_a_worker_assumes_the_role_itself(load: Load) -> None:
    load.node.work = Failing(clear_caches)

    load.put_and_load(1, aws__role_arn=ROLE)

    tokens = [
        one.session_token for one in requests_of(load.server, "GetRecords") if one.records
    ]
    assert tokens == ["token-1", "token-2"]
    assert load.ids() == [1]


def test_t81_keys_of_a_role_that_expire_during_a_task_are_renewed(load: Load, sts: Sts) -> None:
    load.node.work = Failing(lambda: load.control.refuse("token-1", after_calls=2))

    # A task sends one request for every record.
    one_record = {"property__aws__kinesis__max_records": "1"}
    load.put_and_load(1, 2, 3, 4, 5, aws__role_arn=ROLE, **one_record)

    tokens = [
        one.session_token for one in requests_of(load.server, "GetRecords") if one.records
    ][1:]
    assert tokens == ["token-1", "token-1", "token-2", "token-2", "token-2"]
    assert len(sts.requests) == 2
    assert load.ids() == [1, 2, 3, 4, 5]
    assert attempts(load.node, "r") == [(1, 1, "COMMITTED")]


def test_t81_keys_of_a_role_are_renewed_before_they_expire(load: Load, sts: Sts) -> None:
    sts.life = timedelta(seconds=30)
    load.put(1)
    load.create(aws__role_arn=ROLE)

    load.run()

    assert len({one.session_token for one in requests_of(load.server)}) > 1
    assert {one.code for one in requests_of(load.server)} == {""}
    assert load.ids() == [1]


def test_t81_a_refused_role_creates_no_load(load: Load, sts: Sts) -> None:
    sts.refusing = True

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, f'"{ROLE}"', "AccessDenied"):
        load.create(aws__role_arn=ROLE)

    assert requests_of(load.server) == []
    assert load.sql("SHOW ALL ROUTINE LOAD") == []


def test_without_keys_the_default_chain_is_used(load: Load, tmp_path: Path) -> None:
    write_profile(tmp_path, "default", key="of-the-profile")
    load.put(1)
    load.create(aws__access_key="", aws__secret_key="")

    load.run()

    assert {one.access_key_id for one in requests_of(load.server)} == {"of-the-profile"}
    assert load.ids() == [1]


def test_with_a_provider_keys_come_only_from_it(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(tmp_path, "default", key="of-the-profile")
    statement = load.statement(
        aws__access_key="", aws__secret_key="", property__aws__credentials__provider="env"
    )
    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "credentials") as refused:
        load.sql(statement)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    load.put(1)

    load.sql(statement)
    load.run()

    assert refused.value.detail == "Searched: env."
    assert {one.access_key_id for one in requests_of(load.server)} == {"of-the-environment"}
    assert load.ids() == [1]


def test_t82_all_pages_of_a_stream_named_by_its_arn_are_listed(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=3)
    put(wide, 1)
    load.create(
        stream=wide,
        property__aws__kinesis__stream_arn=wide.arn,
        property__aws__kinesis__max_results="1",
    )

    load.run()

    assert {one.code for one in requests_of(load.server)} == {""}
    assert len(load.shards()) == 3
    assert load.ids() == [1]
