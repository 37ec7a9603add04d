"""Answers on order, refused keys and the log of requests."""

from typing import Any

import pytest

from tests.servers.kinesis.control import ControlError
from tests.servers.kinesis.service import Request
from tests.unit.testing.kinesis.asking import Asking, RefusedError


def status_of(kinesis: Asking, *, key: str = "", token: str = "") -> int:
    request = Request(
        operation="ListStreams", body=b"{}", access_key_id=key, session_token=token
    )
    return kinesis.service.answer(request).status


def test_an_injected_answer_comes_as_often_as_told(kinesis: Asking) -> None:
    kinesis.order("inject", operation="ListShards", code="KMSThrottlingException", times=2)

    with pytest.raises(RefusedError, match="KMSThrottlingException"):
        kinesis.shards()
    kinesis.status()
    with pytest.raises(RefusedError, match="KMSThrottlingException"):
        kinesis.shards()

    assert kinesis.numbers() == [0]


def test_an_injected_answer_can_be_for_any_operation(kinesis: Asking) -> None:
    kinesis.order("inject", operation="*", code="InternalFailure", status=500)

    with pytest.raises(RefusedError, match="InternalFailure"):
        kinesis.status()

    assert kinesis.status() == "ACTIVE"


def test_a_call_that_gets_an_injected_answer_is_not_done(kinesis: Asking) -> None:
    kinesis.order("inject", operation="PutRecord", code="ServiceUnavailable", status=503)

    with pytest.raises(RefusedError, match="ServiceUnavailable"):
        kinesis.put("one")

    assert kinesis.pages(1) == [[]]


def test_an_answer_can_be_malformed(kinesis: Asking) -> None:
    kinesis.put("one")
    iterator = kinesis.iterator()
    kinesis.order("inject", operation="GetRecords", body="{}")

    first, second = kinesis.page(iterator), kinesis.page(iterator)

    assert first == {}
    assert len(second["Records"]) == 1


def test_a_key_is_refused_after_so_many_calls(kinesis: Asking) -> None:
    kinesis.order("refuse", credential="old", after_calls=2, code="ExpiredTokenException")

    answers = [status_of(kinesis, key="old") for _ in range(4)]

    assert answers == [200, 200, 400, 400]
    assert status_of(kinesis, key="new") == 200


def test_a_session_token_is_refused_alike(kinesis: Asking) -> None:
    kinesis.order("refuse", credential="old", after_calls=0, code="ExpiredTokenException")

    assert status_of(kinesis, key="same", token="old") == 400  # noqa: S106 - A word.
    assert status_of(kinesis, key="same", token="new") == 200  # noqa: S106 - A word.


def test_healing_forgets_faults(kinesis: Asking) -> None:
    kinesis.order("inject", operation="*", code="InternalFailure", times=100)
    kinesis.order("refuse", credential="old", after_calls=0, code="ExpiredTokenException")

    kinesis.order("heal")

    assert status_of(kinesis, key="old") == 200


def test_every_request_is_logged(kinesis: Asking) -> None:
    kinesis.put("one")
    iterator = kinesis.iterator()
    kinesis.order("forget_requests")
    kinesis.page(iterator)
    kinesis.order("inject", operation="GetRecords", code="InternalFailure", status=500)
    with pytest.raises(RefusedError):
        kinesis.page(iterator)

    first, second = kinesis.order("requests")

    assert first["at_ms"] == kinesis.order("now")
    assert (first["operation"], first["stream"]) == ("GetRecords", "s")
    assert first["shard"] == second["shard"] == "shardId-000000000000"
    assert (first["status"], first["code"]) == (200, "")
    assert (first["records"], first["size_bytes"]) == (1, 3)
    assert (second["status"], second["code"]) == (500, "InternalFailure")


def test_the_log_answers_for_one_operation(kinesis: Asking) -> None:
    kinesis.shards()

    found = kinesis.order("requests", operation="ListShards")

    assert [entry["operation"] for entry in found] == ["ListShards"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"do": "dance"}, "order 'dance' does not exist"),
        ({"do": "switch", "switches": {"speed": 1}}, "switch 'speed' does not exist"),
        ({"do": "switch", "switches": {"create_ms": True}}, "must be of type int"),
        ({"do": "switch", "switches": {"shard_end": "never"}}, "is not a valid ShardEnd"),
        ({"do": "inject", "operation": "Dance", "code": "x"}, "'Dance' is not served"),
        ({"do": "trim", "stream": "nowhere", "shard": "x"}, "nowhere"),
        ({"do": "move_clock", "seconds": -1}, "forward only"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    kinesis: Asking, order: dict[str, Any], words: str
) -> None:
    name = order.pop("do")

    with pytest.raises((ControlError, ValueError), match=words):
        kinesis.order(name, **order)


def test_an_unknown_operation_is_refused(kinesis: Asking) -> None:
    with pytest.raises(RefusedError, match="UnknownOperationException"):
        kinesis.ask("Dance")
