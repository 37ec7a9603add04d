"""Answers requests: faults first, then limits, then the operation; all of it is logged."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.servers.kinesis.faults import ANY, error_answer
from tests.servers.kinesis.given import Given
from tests.servers.kinesis.listing import list_shards
from tests.servers.kinesis.record_operations import (
    get_records,
    get_shard_iterator,
    put_record,
    put_records,
)
from tests.servers.kinesis.refusal import RefusalError
from tests.servers.kinesis.reply import Reply, encoded
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

OPERATIONS: Mapping[str, Callable[[State, Given], Reply]] = {
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
_BY_STREAM = "ListShards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came in, apart from HTTP."""

    operation: str
    body: bytes
    access_key_id: str = ""
    session_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status and a body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What goes out and what is logged; the records of a reply are not joined yet."""

    status: int = HTTPStatus.OK
    code: str = ""
    body: str = ""
    reply: Reply | None = None


@dataclass(slots=True)
class Service:
    """A Kinesis without its wire; any thread may ask it."""

    state: State
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        given = _parsed(request.body)
        with self.lock:
            outcome = self._outcome(request, given)
            self.state.log.add(_logged(request, given, outcome, self.state.now_ms()))
        # A page is joined outside of the lock, because it may be large.
        if outcome.reply is not None:
            return Answer(status=outcome.status, body=encoded(outcome.reply))
        return Answer(status=outcome.status, body=outcome.body.encode())

    def latency_ms(self, operation: str) -> int:
        """Answer how long an operation is to take."""
        by_operation = self.state.switches.latency_ms_by_operation
        return by_operation.get(operation, by_operation.get(ANY, 0))

    def _outcome(self, request: Request, given: Given) -> _Outcome:
        injected = self.state.faults.next_for(request.operation)
        if injected is not None:
            return _Outcome(status=injected.status, code=injected.code, body=injected.body)
        try:
            self.state.faults.require_granted(request.access_key_id, request.session_token)
            self._require_calls_left(request.operation, given)
            return _Outcome(reply=_operation(request.operation)(self.state, given))
        except RefusalError as error:
            written = error_answer(error.code, error.message, status=error.status)
            return _Outcome(status=written.status, code=error.code, body=written.body)

    def _require_calls_left(self, operation: str, given: Given) -> None:
        calls_max = self.state.switches.control_calls_per_second.get(operation)
        if calls_max is None:
            return
        counted = (
            f"{operation} of {_subject(given)[0]}" if operation == _BY_STREAM else operation
        )
        self.state.limits.require_control(counted, self.state.now_ms(), calls_max)


def _operation(name: str) -> Callable[[State, Given], Reply]:
    if name not in OPERATIONS:
        raise RefusalError("UnknownOperationException", f"Operation {name!r} is not served.")
    return OPERATIONS[name]


def _parsed(body: bytes) -> Given:
    try:
        fields = json.loads(body or b"{}")
    except ValueError:
        fields = {}
    return Given(fields if isinstance(fields, dict) else {})


def _subject(given: Given) -> tuple[str, str]:
    """Answer the names of the stream and the shard that a request is about, if any."""
    try:
        if given.has("ShardIterator"):
            token = decode_iterator(given.text("ShardIterator"))
            return token.stream, shard_name(token.shard)
        if given.has("NextToken"):
            return decode_page_token(given.text("NextToken")).stream, ""
    except RefusalError:
        return "", ""
    stream = given.fields.get("StreamName") or given.fields.get("StreamARN") or ""
    shard = given.fields.get("ShardId") or given.fields.get("ShardToSplit") or ""
    return str(stream).rpartition("/")[2], str(shard)


def _logged(request: Request, given: Given, outcome: _Outcome, at_ms: int) -> LoggedRequest:
    stream, shard = _subject(given)
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
