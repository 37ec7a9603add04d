"""Operations on records: writing them, and reading them by iterators."""

import hashlib
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.given import Given
from tests.servers.kinesis.refusal import invalid, missing
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
    require_young_iterator,
)

_PAGE_RECORDS_MAX = 10_000
_PAGE_BYTES_MAX = 10 * 1024 * 1024
_PUT_RECORDS_MAX = 500
_PUT_BYTES_MAX = 10 * 1024 * 1024
_KEY_LETTERS_MAX = 256


class IteratorType(StrEnum):
    """Where an iterator begins."""

    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"


def put_record(state: State, given: Given) -> Reply:
    """Keep one record."""
    stream = state.stream(given)
    stream.require_readable()
    _require_fitting(stream, given)
    return Reply(fields=_put(state, stream, given) | _encryption(state))


def put_records(state: State, given: Given) -> Reply:
    """Keep up to five hundred records."""
    stream = state.stream(given)
    stream.require_readable()
    entries = given.inner_list("Records")
    if not 1 <= len(entries) <= _PUT_RECORDS_MAX:
        raise invalid(f"PutRecords takes 1 to 500 records, not {len(entries)}.")
    total_bytes = sum(_require_fitting(stream, entry) for entry in entries)
    if total_bytes > _PUT_BYTES_MAX:
        raise invalid(f"Records of PutRecords must not exceed 10 MiB, not {total_bytes} bytes.")
    kept = [_put(state, stream, entry) for entry in entries]
    return Reply(fields={"FailedRecordCount": 0, "Records": kept} | _encryption(state))


def get_shard_iterator(state: State, given: Given) -> Reply:
    """Answer an iterator for a shard."""
    stream = state.stream(given)
    stream.require_readable()
    shard = stream.shard(given.text("ShardId"))
    now_ms = state.now_ms()
    if state.switches.limit_iterators:
        state.limits.require_iterator(f"{stream.name}/{shard.shard_id}", now_ms)
    made = Iterator(
        stream=stream.name,
        birth=stream.birth,
        shard=shard.number,
        index=_first_index(shard, given, now_ms),
        issued_ms=now_ms,
        series=state.iterator_series,
        empty_pages=state.switches.empty_pages_after_iterator,
    )
    return Reply(fields={"ShardIterator": encode(made)})


def get_records(state: State, given: Given) -> Reply:
    """Answer a page of records, and where the next one begins."""
    token = decode_iterator(given.text("ShardIterator"))
    records_max = given.number("Limit", default=_PAGE_RECORDS_MAX, at_most=_PAGE_RECORDS_MAX)
    now_ms = state.now_ms()
    seen_ms = now_ms if state.switches.iterators_expire else token.issued_ms
    require_young_iterator(token, now_ms=seen_ms, series=state.iterator_series)
    stream = state.stream_named(token.stream)
    if stream.birth != token.birth:
        raise missing(f"Stream {token.stream} of the iterator does not exist any more.")
    stream.require_readable()
    shard = stream.shards[token.shard]
    limited = f"{stream.name}/{shard.shard_id}"
    if state.switches.limit_reads:
        state.limits.require_read(limited, now_ms)
    page = shard.page(
        token.index,
        records_max=0 if token.empty_pages else records_max,
        bytes_max=_PAGE_BYTES_MAX,
    )
    if state.switches.limit_reads:
        state.limits.count_read(limited, now_ms, page.size_bytes)
    fields: dict[str, object] = {
        "MillisBehindLatest": max(1, now_ms - page.seen_ms) if page.behind else 0
    }
    if _ended(shard, page, token, state.switches):
        fields["ChildShards"] = [child.as_child() for child in stream.children_of(shard)]
    else:
        later = _next_iterator(token, page, state.switches)
        later = replace(later, issued_ms=now_ms, series=state.iterator_series)
        fields["NextShardIterator"] = encode(later)
    return Reply(fields=fields, records=page.pieces, size_bytes=page.size_bytes)


def _ended(shard: Shard, page: Page, token: Iterator, switches: Switches) -> bool:
    if shard.open or page.behind or token.empty_pages:
        return False
    return not page.pieces or switches.shard_end is ShardEnd.WITH_LAST_RECORDS


def _next_iterator(token: Iterator, page: Page, switches: Switches) -> Iterator:
    if token.empty_pages:
        return replace(token, empty_pages=token.empty_pages - 1)
    empty_pages = switches.empty_pages_while_behind if page.behind else 0
    return replace(token, index=page.next_index, empty_pages=empty_pages)


def _first_index(shard: Shard, given: Given, now_ms: int) -> int:
    text = given.text("ShardIteratorType")
    if text not in set(IteratorType):
        raise invalid(f"ShardIteratorType {text} does not exist.")
    kind = IteratorType(text)
    match kind:
        case IteratorType.TRIM_HORIZON:
            return 0
        case IteratorType.LATEST:
            return shard.end
        case IteratorType.AT_TIMESTAMP:
            return shard.index_from(_past_ms(given, now_ms))
        case IteratorType.AT_SEQUENCE_NUMBER:
            return max(0, min(_sequence(shard, given).index - 1, shard.end))
        case IteratorType.AFTER_SEQUENCE_NUMBER:
            return min(_sequence(shard, given).index, shard.end)
        case _:
            assert_never(kind)


def _past_ms(given: Given, now_ms: int) -> int:
    at_ms = given.instant_ms("Timestamp")
    if at_ms is None:
        raise invalid(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP."
        )
    if at_ms > now_ms:
        raise invalid(
            f"The timestampInMillis parameter cannot be greater than the current time "
            f"in millis. timestampInMillis: {at_ms}, current time: {now_ms}"
        )
    return at_ms


def _sequence(shard: Shard, given: Given) -> Sequence:
    text = given.text("StartingSequenceNumber")
    found = parse_sequence(text)
    if found is None:
        raise invalid(f"StartingSequenceNumber {text} is not a sequence number.")
    if found.shard != shard.number:
        raise invalid(
            f"Invalid StartingSequenceNumber. It encodes {shard_name(found.shard)}, while it "
            f"was used in a call to a shard with {shard.shard_id}"
        )
    if found.birth != shard.birth:
        raise invalid(
            f"StartingSequenceNumber {text} used in GetShardIterator on shard {shard.shard_id} "
            "is invalid because it did not come from this stream."
        )
    return found


def _require_fitting(stream: Stream, given: Given) -> int:
    key = given.text("PartitionKey")
    if len(key) > _KEY_LETTERS_MAX:
        raise invalid(f"PartitionKey must have at most 256 letters, not {len(key)}.")
    if given.has("ExplicitHashKey"):
        given.hash_key("ExplicitHashKey")
    size_bytes = decoded_bytes(given.encoded("Data"))
    if size_bytes > stream.record_bytes_max:
        raise invalid(
            f"Data must have at most {stream.record_bytes_max} bytes, not {size_bytes}."
        )
    return size_bytes + len(key.encode())


def _put(state: State, stream: Stream, given: Given) -> dict[str, object]:
    key = given.text("PartitionKey")
    explicit = given.has("ExplicitHashKey")
    shard = stream.shard_of(given.hash_key("ExplicitHashKey") if explicit else _hashed(key))
    number = shard.append(
        given.encoded("Data"),
        partition_key=key,
        arrival_ms=state.now_ms() + state.switches.arrival_shift_ms,
        encryption=state.switches.encryption_type,
    )
    return {"ShardId": shard.shard_id, "SequenceNumber": str(number)}


def _encryption(state: State) -> dict[str, object]:
    return {"EncryptionType": state.switches.encryption_type}


def _hashed(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")
