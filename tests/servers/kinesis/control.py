"""What tests order from the server, as JSON like {"do": "heal"}: a function per order."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from tests.servers.kinesis.faults import Faults, error_answer, malformed_answer
from tests.servers.kinesis.limits import Limits
from tests.servers.kinesis.refusal import RefusalError
from tests.servers.kinesis.service import OPERATIONS, Service
from tests.servers.kinesis.state import State
from tests.servers.kinesis.switches import Switches, switched

CONTROL_PATH = "/control"

Order = Mapping[str, Any]


class ControlError(Exception):
    """An order that cannot be obeyed; the message says why."""


def obey(service: Service, order: Order) -> object:
    """Do what an order says; answer what it asks for, or nothing."""
    name = str(order.get("do"))
    if name not in _ORDERS:
        raise ControlError(f"order {name!r} does not exist; there are {', '.join(_ORDERS)}")
    try:
        with service.lock:
            return _ORDERS[name](service.state, order)
    except RefusalError as error:
        raise ControlError(str(error)) from error


def _switch(state: State, order: Order) -> None:
    state.switches = switched(state.switches, order["switches"])


def _inject(state: State, order: Order) -> None:
    operation = order["operation"]
    if operation != "*" and operation not in OPERATIONS:
        raise ControlError(f"operation {operation!r} is not served")
    if order.get("body") is not None:
        answer = malformed_answer(order["body"])
    else:
        status = order.get("status", HTTPStatus.BAD_REQUEST)
        answer = error_answer(order["code"], order.get("message", ""), status=status)
    state.faults.inject(operation, answer, times=order.get("times", 1))


def _refuse(state: State, order: Order) -> None:
    state.faults.refuse(
        order["credential"], after_calls=order["after_calls"], code=order["code"]
    )


def _heal(state: State, _order: Order) -> None:
    state.switches, state.faults, state.limits = Switches(), Faults(), Limits()


def _reset(state: State, order: Order) -> None:
    _heal(state, order)
    state.forget_streams()
    state.log.clear()
    state.moved = timedelta()


def _expire_iterators(state: State, _order: Order) -> None:
    state.iterator_series += 1


def _expire_tokens(state: State, _order: Order) -> None:
    state.page_series += 1


def _move_clock(state: State, order: Order) -> None:
    by = timedelta(seconds=order["seconds"])
    if by < timedelta():
        raise ControlError(f"the clock moves forward only, not by {by}")
    state.moved += by


def _now(state: State, _order: Order) -> int:
    return state.now_ms()


def _trim(state: State, order: Order) -> int:
    """Forget the oldest records of a shard; a closed one that has none left is gone."""
    shard = state.stream_named(order["stream"]).shard(order["shard"])
    count = order.get("count")
    trimmed = shard.trim(shard.end if count is None else count)
    shard.gone = not shard.open and shard.end == shard.trimmed
    return trimmed


def _preload(state: State, order: Order) -> None:
    """Make JSON records of one size, in turn for every open shard."""
    stream = state.stream_named(order["stream"])
    stream.require_readable()
    shards, size_bytes = stream.open_shards(), order["size_bytes"]
    arrival_ms = state.now_ms() + state.switches.arrival_shift_ms
    for number in range(order["count"]):
        shards[number % len(shards)].append(
            base64.b64encode(_filled(number, size_bytes)).decode(),
            partition_key=str(number),
            arrival_ms=arrival_ms,
        )


def _filled(number: int, size_bytes: int) -> bytes:
    head = b'{"id":%d,"text":"' % number
    return head + b"x" * (size_bytes - len(head) - 2) + b'"}'


def _requests(state: State, order: Order) -> list[dict[str, object]]:
    return [asdict(entry) for entry in state.log.entries(order.get("operation", ""))]


def _forget_requests(state: State, _order: Order) -> None:
    state.log.clear()


_ORDERS: Mapping[str, Callable[[State, Order], object]] = {
    "switch": _switch,
    "inject": _inject,
    "refuse": _refuse,
    "heal": _heal,
    "reset": _reset,
    "expire_iterators": _expire_iterators,
    "expire_tokens": _expire_tokens,
    "move_clock": _move_clock,
    "now": _now,
    "trim": _trim,
    "preload": _preload,
    "requests": _requests,
    "forget_requests": _forget_requests,
}
