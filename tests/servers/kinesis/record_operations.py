"""Operations that write records, and read them by iterators."""

import hashlib
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.errors import invalid_argument, not_found
from tests.servers.kinesis.parameters import Parameters
from tests.servers.kinesis.reply import Reply
from tests.servers.kinesis.sequence import Sequence, parse_sequence
from tests.servers.kinesis.shard import Page, Shard, decoded_bytes, shard_name
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import Stream
from tests.servers.kinesis.switches import ShardEnd, Switches
from tests.servers.kinesis.tokens import (
    Iterator,
    decode_iterator,
    encode,
    require_unexpired_iterator,
)

_PAGE_RECORDS_MAX = 10_000
_PAGE_BYTES_MAX = 10 * 1024 * 1024
_PUT_RECORDS_MAX = 500
_PUT_BYTES_MAX = 10 * 1024 * 1024
_KEY_CHARACTERS_MAX = 256


class IteratorType(StrEnum):
    """Types of start positions of an iterator."""

    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"


def put_record(state: State, parameters: Parameters) -> Reply:
    """Store one record."""
    stream = state.stream(parameters)
    stream.require_readable()
    _require_valid_record(stream, parameters)
    return Reply(fields=_put(state, stream, parameters) | _encryption(state))


def put_records(state: State, parameters: Parameters) -> Reply:
    """Store up to 500 records."""
    stream = state.stream(parameters)
    stream.require_readable()
    entries = parameters.inner_list("Records")
    if not 1 <= len(entries) <= _PUT_RECORDS_MAX:
        raise invalid_argument(f"PutRecords takes 1 to 500 records, not {len(entries)}.")
    total_bytes = sum(_require_valid_record(stream, entry) for entry in entries)
    if total_bytes > _PUT_BYTES_MAX:
        raise invalid_argument(
            f"Records of PutRecords must not exceed 10 MiB, not {total_bytes} bytes."
        )
    stored = [_put(state, stream, entry) for entry in entries]
    return Reply(fields={"FailedRecordCount": 0, "Records": stored} | _encryption(state))


def get_shard_iterator(state: State, parameters: Parameters) -> Reply:
    """Return an iterator of a shard."""
    stream = state.stream(parameters)
    stream.require_readable()
    shard = stream.shard(parameters.text("ShardId"))
    now_ms = state.now_ms()
    if state.switches.limit_iterators:
        state.limits.require_iterator(f"{stream.name}/{shard.shard_id}", now_ms)
    iterator = Iterator(
        stream=stream.name,
        creation_second=stream.creation_second,
        shard=shard.number,
        index=_first_index(shard, parameters, now_ms),
        issued_ms=now_ms,
        series=state.iterator_series,
        empty_pages=state.switches.empty_pages_after_iterator,
    )
    return Reply(fields={"ShardIterator": encode(iterator)})


def get_records(state: State, parameters: Parameters) -> Reply:
    """Return a page of records, and the iterator of the next page."""
    token = decode_iterator(parameters.text("ShardIterator"))
    records_max = parameters.number(
        "Limit", default=_PAGE_RECORDS_MAX, at_most=_PAGE_RECORDS_MAX
    )
    now_ms = state.now_ms()
    checked_ms = now_ms if state.switches.iterators_expire else token.issued_ms
    require_unexpired_iterator(token, now_ms=checked_ms, series=state.iterator_series)
    stream = state.stream_named(token.stream)
    if stream.creation_second != token.creation_second:
        raise not_found(f"Stream {token.stream} of the iterator no longer exists.")
    stream.require_readable()
    shard = stream.shards[token.shard]
    limit_key = f"{stream.name}/{shard.shard_id}"
    if state.switches.limit_reads:
        state.limits.require_read(limit_key, now_ms)
    page = shard.page(
        token.index,
        records_max=0 if token.empty_pages else records_max,
        bytes_max=_PAGE_BYTES_MAX,
    )
    if state.switches.limit_reads:
        state.limits.count_read(limit_key, now_ms, page.size_bytes)
    fields: dict[str, object] = {
        "MillisBehindLatest": max(1, now_ms - page.last_arrival_ms) if page.more else 0
    }
    if _ended(shard, page, token, state.switches):
        fields["ChildShards"] = [child.as_child() for child in stream.children_of(shard)]
    else:
        later = _next_iterator(token, page, state.switches)
        later = replace(later, issued_ms=now_ms, series=state.iterator_series)
        fields["NextShardIterator"] = encode(later)
    return Reply(fields=fields, records=page.records, size_bytes=page.size_bytes)


def _ended(shard: Shard, page: Page, token: Iterator, switches: Switches) -> bool:
    if shard.open or page.more or token.empty_pages:
        return False
    return not page.records or switches.shard_end is ShardEnd.WITH_LAST_RECORDS


def _next_iterator(token: Iterator, page: Page, switches: Switches) -> Iterator:
    if token.empty_pages:
        return replace(token, empty_pages=token.empty_pages - 1)
    empty_pages = switches.empty_pages_between_pages if page.more else 0
    return replace(token, index=page.next_index, empty_pages=empty_pages)


def _first_index(shard: Shard, parameters: Parameters, now_ms: int) -> int:
    text = parameters.text("ShardIteratorType")
    if text not in set(IteratorType):
        raise invalid_argument(f"ShardIteratorType {text} does not exist.")
    kind = IteratorType(text)
    match kind:
        case IteratorType.TRIM_HORIZON:
            return 0
        case IteratorType.LATEST:
            return shard.end
        case IteratorType.AT_TIMESTAMP:
            return shard.index_from(_past_ms(parameters, now_ms))
        case IteratorType.AT_SEQUENCE_NUMBER:
            return max(0, min(_sequence(shard, parameters).index - 1, shard.end))
        case IteratorType.AFTER_SEQUENCE_NUMBER:
            return min(_sequence(shard, parameters).index, shard.end)
        case _:
            assert_never(kind)


def _past_ms(parameters: Parameters, now_ms: int) -> int:
    at_ms = parameters.instant_ms("Timestamp")
    if at_ms is None:
        raise invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP."
        )
    if at_ms > now_ms:
        raise invalid_argument(
            f"The timestampInMillis parameter cannot be greater than the current time "
            f"in millis. timestampInMillis: {at_ms}, current time: {now_ms}"
        )
    return at_ms


def _sequence(shard: Shard, parameters: Parameters) -> Sequence:
    text = parameters.text("StartingSequenceNumber")
    found = parse_sequence(text)
    if found is None:
        raise invalid_argument(f"StartingSequenceNumber {text} is not a sequence number.")
    if found.shard != shard.number:
        raise invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes {shard_name(found.shard)}, while it "
            f"was used in a call to a shard with {shard.shard_id}"
        )
    if found.creation_second != shard.creation_second:
        raise invalid_argument(
            f"StartingSequenceNumber {text} used in GetShardIterator on shard {shard.shard_id} "
            "is invalid because it did not come from this stream."
        )
    return found


def _require_valid_record(stream: Stream, parameters: Parameters) -> int:
    key = parameters.text("PartitionKey")
    if len(key) > _KEY_CHARACTERS_MAX:
        raise invalid_argument(
            f"PartitionKey must have at most 256 characters, not {len(key)}."
        )
    if parameters.has("ExplicitHashKey"):
        parameters.hash_key("ExplicitHashKey")
    size_bytes = decoded_bytes(parameters.encoded("Data"))
    if size_bytes > stream.record_bytes_max:
        raise invalid_argument(
            f"Data must have at most {stream.record_bytes_max} bytes, not {size_bytes}."
        )
    return size_bytes + len(key.encode())


def _put(state: State, stream: Stream, parameters: Parameters) -> dict[str, object]:
    key = parameters.text("PartitionKey")
    explicit = parameters.has("ExplicitHashKey")
    shard = stream.shard_of(
        parameters.hash_key("ExplicitHashKey") if explicit else _hash_of(key)
    )
    number = shard.append(
        parameters.encoded("Data"),
        partition_key=key,
        arrival_ms=state.now_ms() + state.switches.arrival_shift_ms,
        encryption=state.switches.encryption_type,
    )
    return {"ShardId": shard.shard_id, "SequenceNumber": str(number)}


def _encryption(state: State) -> dict[str, object]:
    return {"EncryptionType": state.switches.encryption_type}


def _hash_of(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")
