"""Handling of requests: faults, then limits, then the operation; all are logged."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.servers.kinesis.errors import ServiceError
from tests.servers.kinesis.faults import ANY, error_response
from tests.servers.kinesis.listing import list_shards
from tests.servers.kinesis.parameters import Parameters
from tests.servers.kinesis.record_operations import (
    get_records,
    get_shard_iterator,
    put_record,
    put_records,
)
from tests.servers.kinesis.reply import Reply, encode_reply
from tests.servers.kinesis.request_log import LoggedRequest
from tests.servers.kinesis.shard import shard_name
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream_operations import (
    create_stream,
    decrease_retention,
    delete_stream,
    describe_stream,
    describe_stream_summary,
    increase_retention,
    list_streams,
    merge_shards,
    split_shard,
    update_shard_count,
)
from tests.servers.kinesis.tokens import decode_iterator, decode_page_token

OPERATIONS: Mapping[str, Callable[[State, Parameters], Reply]] = {
    "CreateStream": create_stream,
    "DecreaseStreamRetentionPeriod": decrease_retention,
    "DeleteStream": delete_stream,
    "DescribeStream": describe_stream,
    "DescribeStreamSummary": describe_stream_summary,
    "GetRecords": get_records,
    "GetShardIterator": get_shard_iterator,
    "IncreaseStreamRetentionPeriod": increase_retention,
    "ListShards": list_shards,
    "ListStreams": list_streams,
    "MergeShards": merge_shards,
    "PutRecord": put_record,
    "PutRecords": put_records,
    "SplitShard": split_shard,
    "UpdateShardCount": update_shard_count,
}
_LIMITED_BY_STREAM = "ListShards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request without its HTTP parts."""

    operation: str
    body: bytes
    access_key_id: str = ""
    session_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status and body of a response."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Data of a response and of its log entry; records are not joined yet."""

    status: int = HTTPStatus.OK
    code: str = ""
    body: str = ""
    reply: Reply | None = None


@dataclass(slots=True)
class Service:
    """Kinesis service without HTTP; thread-safe."""

    state: State
    lock: threading.RLock = field(default_factory=threading.RLock)

    def handle(self, request: Request) -> Response:
        """Execute one request and return the response."""
        parameters = _parsed(request.body)
        with self.lock:
            outcome = self._outcome(request, parameters)
            self.state.log.add(_logged(request, parameters, outcome, self.state.now_ms()))
        # A page may be large, so its records are joined outside of the lock.
        if outcome.reply is not None:
            return Response(status=outcome.status, body=encode_reply(outcome.reply))
        return Response(status=outcome.status, body=outcome.body.encode())

    def latency_ms(self, operation: str) -> int:
        """Return the configured latency of an operation."""
        by_operation = self.state.switches.latency_ms_by_operation
        return by_operation.get(operation, by_operation.get(ANY, 0))

    def _outcome(self, request: Request, parameters: Parameters) -> _Outcome:
        injected = self.state.faults.next_for(request.operation)
        if injected is not None:
            return _Outcome(status=injected.status, code=injected.code, body=injected.body)
        try:
            self.state.faults.require_valid(request.access_key_id, request.session_token)
            self._require_calls_left(request.operation, parameters)
            return _Outcome(reply=_operation(request.operation)(self.state, parameters))
        except ServiceError as error:
            response = error_response(error.code, error.message, status=error.status)
            return _Outcome(status=response.status, code=error.code, body=response.body)

    def _require_calls_left(self, operation: str, parameters: Parameters) -> None:
        calls_max = self.state.switches.control_calls_per_second.get(operation)
        if calls_max is None:
            return
        subject = (
            f"{operation} of {_subject(parameters)[0]}"
            if operation == _LIMITED_BY_STREAM
            else operation
        )
        self.state.limits.require_control(subject, self.state.now_ms(), calls_max)


def _operation(name: str) -> Callable[[State, Parameters], Reply]:
    if name not in OPERATIONS:
        raise ServiceError("UnknownOperationException", f"Operation {name!r} is not supported.")
    return OPERATIONS[name]


def _parsed(body: bytes) -> Parameters:
    try:
        fields = json.loads(body or b"{}")
    except ValueError:
        fields = {}
    return Parameters(fields if isinstance(fields, dict) else {})


def _subject(parameters: Parameters) -> tuple[str, str]:
    """Return the names of the stream and the shard of a request; empty if it has none."""
    try:
        if parameters.has("ShardIterator"):
            token = decode_iterator(parameters.text("ShardIterator"))
            return token.stream, shard_name(token.shard)
        if parameters.has("NextToken"):
            return decode_page_token(parameters.text("NextToken")).stream, ""
    except ServiceError:
        return "", ""
    stream = parameters.fields.get("StreamName") or parameters.fields.get("StreamARN") or ""
    shard = parameters.fields.get("ShardId") or parameters.fields.get("ShardToSplit") or ""
    return str(stream).rpartition("/")[2], str(shard)


def _logged(
    request: Request, parameters: Parameters, outcome: _Outcome, at_ms: int
) -> LoggedRequest:
    stream, shard = _subject(parameters)
    reply = outcome.reply or Reply()
    return LoggedRequest(
        operation=request.operation,
        stream=stream,
        shard=shard,
        access_key_id=request.access_key_id,
        session_token=request.session_token,
        at_ms=at_ms,
        status=int(outcome.status),
        code=outcome.code,
        records=len(reply.records or ()),
        size_bytes=reply.size_bytes,
    )
