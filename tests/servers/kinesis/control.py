"""Control commands of tests, as JSON such as {"do": "heal"}; one function per command."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from tests.servers.kinesis.errors import ServiceError
from tests.servers.kinesis.faults import Faults, error_response, malformed_response
from tests.servers.kinesis.limits import Limits
from tests.servers.kinesis.service import OPERATIONS, Service
from tests.servers.kinesis.state import State
from tests.servers.kinesis.switches import Switches, switched

CONTROL_PATH = "/control"

Command = Mapping[str, Any]


class ControlError(Exception):
    """Error for a control command that cannot be executed."""


def execute_command(service: Service, command: Command) -> object:
    """Execute a control command and return its result."""
    name = str(command.get("do"))
    if name not in _COMMANDS:
        raise ControlError(
            f"command {name!r} does not exist; allowed are {', '.join(_COMMANDS)}"
        )
    try:
        with service.lock:
            return _COMMANDS[name](service.state, command)
    except ServiceError as error:
        raise ControlError(str(error)) from error


def _switch(state: State, command: Command) -> None:
    state.switches = switched(state.switches, command["switches"])


def _inject(state: State, command: Command) -> None:
    operation = command["operation"]
    if operation != "*" and operation not in OPERATIONS:
        raise ControlError(f"operation {operation!r} is not supported")
    if command.get("body") is not None:
        response = malformed_response(command["body"])
    else:
        status = command.get("status", HTTPStatus.BAD_REQUEST)
        response = error_response(command["code"], command.get("message", ""), status=status)
    state.faults.inject(operation, response, times=command.get("times", 1))


def _refuse(state: State, command: Command) -> None:
    state.faults.refuse(
        command["credential"], after_calls=command["after_calls"], code=command["code"]
    )


def _heal(state: State, _command: Command) -> None:
    state.switches, state.faults, state.limits = Switches(), Faults(), Limits()


def _reset(state: State, command: Command) -> None:
    _heal(state, command)
    state.delete_streams()
    state.log.clear()
    state.moved = timedelta()


def _expire_iterators(state: State, _command: Command) -> None:
    state.iterator_series += 1


def _expire_tokens(state: State, _command: Command) -> None:
    state.page_series += 1


def _move_clock(state: State, command: Command) -> None:
    by = timedelta(seconds=command["seconds"])
    if by < timedelta():
        raise ControlError(f"the clock can only move forward, not by {by}")
    state.moved += by


def _now(state: State, _command: Command) -> int:
    return state.now_ms()


def _trim(state: State, command: Command) -> int:
    """Delete the oldest records of a shard; delete a closed shard without records."""
    shard = state.stream_named(command["stream"]).shard(command["shard"])
    count = command.get("count")
    trimmed = shard.trim(shard.end if count is None else count)
    shard.gone = not shard.open and shard.end == shard.trimmed
    return trimmed


def _preload(state: State, command: Command) -> None:
    """Add JSON records of one size, in turn to every open shard."""
    stream = state.stream_named(command["stream"])
    stream.require_readable()
    shards, size_bytes = stream.open_shards(), command["size_bytes"]
    arrival_ms = state.now_ms() + state.switches.arrival_shift_ms
    for number in range(command["count"]):
        shards[number % len(shards)].append(
            base64.b64encode(_filled(number, size_bytes)).decode(),
            partition_key=str(number),
            arrival_ms=arrival_ms,
        )


def _filled(number: int, size_bytes: int) -> bytes:
    head = b'{"id":%d,"text":"' % number
    return head + b"x" * (size_bytes - len(head) - 2) + b'"}'


def _requests(state: State, command: Command) -> list[dict[str, object]]:
    return [asdict(entry) for entry in state.log.entries(command.get("operation", ""))]


def _clear_requests(state: State, _command: Command) -> None:
    state.log.clear()


_COMMANDS: Mapping[str, Callable[[State, Command], object]] = {
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
    "clear_requests": _clear_requests,
}
