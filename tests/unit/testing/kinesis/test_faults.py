"""Injected responses, refused keys and the request log."""

from typing import Any

import pytest

from tests.servers.kinesis.control import ControlError
from tests.servers.kinesis.service import Request
from tests.unit.testing.kinesis.in_process import InProcessKinesis, ResponseError


def status_of(kinesis: InProcessKinesis, *, key: str = "", token: str = "") -> int:
    request = Request(
        operation="ListStreams", body=b"{}", access_key_id=key, session_token=token
    )
    return kinesis.service.handle(request).status


def test_an_injected_error_is_returned_the_given_number_of_times(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.control("inject", operation="ListShards", code="KMSThrottlingException", times=2)

    with pytest.raises(ResponseError, match="KMSThrottlingException"):
        kinesis.shards()
    kinesis.status()
    with pytest.raises(ResponseError, match="KMSThrottlingException"):
        kinesis.shards()

    assert kinesis.numbers() == [0]


def test_an_injected_error_can_apply_to_any_operation(kinesis: InProcessKinesis) -> None:
    kinesis.control("inject", operation="*", code="InternalFailure", status=500)

    with pytest.raises(ResponseError, match="InternalFailure"):
        kinesis.status()

    assert kinesis.status() == "ACTIVE"


def test_a_call_with_an_injected_error_is_not_executed(kinesis: InProcessKinesis) -> None:
    kinesis.control("inject", operation="PutRecord", code="ServiceUnavailable", status=503)

    with pytest.raises(ResponseError, match="ServiceUnavailable"):
        kinesis.put("one")

    assert kinesis.pages(1) == [[]]


def test_a_response_can_be_malformed(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    iterator = kinesis.iterator()
    kinesis.control("inject", operation="GetRecords", body="{}")

    first, second = kinesis.page(iterator), kinesis.page(iterator)

    assert first == {}
    assert len(second["Records"]) == 1


def test_a_key_is_refused_after_the_given_number_of_calls(kinesis: InProcessKinesis) -> None:
    kinesis.control("refuse", credential="old", after_calls=2, code="ExpiredTokenException")

    statuses = [status_of(kinesis, key="old") for _ in range(4)]

    assert statuses == [200, 200, 400, 400]
    assert status_of(kinesis, key="new") == 200


def test_a_session_token_can_be_refused(kinesis: InProcessKinesis) -> None:
    kinesis.control("refuse", credential="old", after_calls=0, code="ExpiredTokenException")

    assert status_of(kinesis, key="same", token="old") == 400  # noqa: S106 - A word.
    assert status_of(kinesis, key="same", token="new") == 200  # noqa: S106 - A word.


def test_healing_removes_faults(kinesis: InProcessKinesis) -> None:
    kinesis.control("inject", operation="*", code="InternalFailure", times=100)
    kinesis.control("refuse", credential="old", after_calls=0, code="ExpiredTokenException")

    kinesis.control("heal")

    assert status_of(kinesis, key="old") == 200


def test_every_request_is_logged(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    iterator = kinesis.iterator()
    kinesis.control("clear_requests")
    kinesis.page(iterator)
    kinesis.control("inject", operation="GetRecords", code="InternalFailure", status=500)
    with pytest.raises(ResponseError):
        kinesis.page(iterator)

    first, second = kinesis.control("requests")

    assert first["at_ms"] == kinesis.control("now")
    assert (first["operation"], first["stream"]) == ("GetRecords", "s")
    assert first["shard"] == second["shard"] == "shardId-000000000000"
    assert (first["status"], first["code"]) == (200, "")
    assert (first["records"], first["size_bytes"]) == (1, 3)
    assert (second["status"], second["code"]) == (500, "InternalFailure")


def test_the_request_log_can_be_filtered_by_operation(kinesis: InProcessKinesis) -> None:
    kinesis.shards()

    found = kinesis.control("requests", operation="ListShards")

    assert [entry["operation"] for entry in found] == ["ListShards"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"do": "dance"}, "command 'dance' does not exist"),
        ({"do": "switch", "switches": {"speed": 1}}, "switch 'speed' does not exist"),
        ({"do": "switch", "switches": {"create_ms": True}}, "must be of type int"),
        ({"do": "switch", "switches": {"shard_end": "never"}}, "is not a valid ShardEnd"),
        ({"do": "inject", "operation": "Dance", "code": "x"}, "'Dance' is not supported"),
        ({"do": "trim", "stream": "nowhere", "shard": "x"}, "nowhere"),
        ({"do": "move_clock", "seconds": -1}, "only move forward"),
    ],
)
def test_an_invalid_control_request_is_refused(
    kinesis: InProcessKinesis, command: dict[str, Any], message: str
) -> None:
    name = command.pop("do")

    with pytest.raises((ControlError, ValueError), match=message):
        kinesis.control(name, **command)


def test_an_unknown_operation_is_refused(kinesis: InProcessKinesis) -> None:
    with pytest.raises(ResponseError, match="UnknownOperationException"):
        kinesis.send("Dance")
