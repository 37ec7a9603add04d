"""Operations on streams: making, describing, resharding and deleting them."""

from tests.servers.kinesis.given import Given
from tests.servers.kinesis.refusal import invalid
from tests.servers.kinesis.reply import Reply
from tests.servers.kinesis.resharding import Step, even_steps, merge_step, split_step
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import Stream, StreamStatus

_SHARDS_MAX = 10_000
_ON_DEMAND_SHARDS = 4
_RETENTION_HOURS_MIN, _RETENTION_HOURS_MAX = 24, 8760


def create_stream(state: State, given: Given) -> Reply:
    """Begin a stream."""
    mode = "PROVISIONED"
    if given.has("StreamModeDetails"):
        mode = given.inner("StreamModeDetails").text("StreamMode")
    default = _ON_DEMAND_SHARDS if mode == "ON_DEMAND" else None
    count = given.number("ShardCount", default=default, at_most=_SHARDS_MAX)
    record_kib = given.number("MaxRecordSizeInKiB", default=1024, at_most=10_240)
    made = state.create_stream(given.text("StreamName"), count)
    made.mode = mode
    made.record_bytes_max = record_kib * 1024
    return Reply()


def delete_stream(state: State, given: Given) -> Reply:
    """Begin to remove a stream."""
    state.stream(given).delete(ready_ms=state.now_ms() + state.switches.delete_ms)
    return Reply()


def describe_stream(state: State, given: Given) -> Reply:
    """Describe a stream with a page of its shards."""
    stream = state.stream(given)
    shards_max = given.number("Limit", default=100, at_most=10_000)
    after = given.text_or_none("ExclusiveStartShardId")
    later = [shard for shard in stream.listed() if shard.shard_id > after]
    described = _described(stream) | {
        "Shards": [shard.described() for shard in later[:shards_max]],
        "HasMoreShards": len(later) > shards_max,
    }
    return Reply(fields={"StreamDescription": described})


def describe_stream_summary(state: State, given: Given) -> Reply:
    """Describe a stream without its shards."""
    stream = state.stream(given)
    counted = 0 if stream.status is StreamStatus.CREATING else len(stream.open_shards())
    described = _described(stream) | {
        "OpenShardCount": counted,
        "ConsumerCount": 0,
        "MaxRecordSizeInKiB": stream.record_bytes_max // 1024,
    }
    return Reply(fields={"StreamDescriptionSummary": described})


def list_streams(state: State, given: Given) -> Reply:
    """List a page of the streams by name."""
    streams_max = given.number("Limit", default=100, at_most=10_000)
    after = given.text_or_none("NextToken") or given.text_or_none("ExclusiveStartStreamName")
    later = [stream for stream in state.streams() if stream.name > after]
    page, more = later[:streams_max], len(later) > streams_max
    fields: dict[str, object] = {
        "StreamNames": [stream.name for stream in page],
        "HasMoreStreams": more,
        "StreamSummaries": [_summary(stream) for stream in page],
    }
    return Reply(fields=fields | ({"NextToken": page[-1].name} if more else {}))


def split_shard(state: State, given: Given) -> Reply:
    """Cut a shard in two."""
    stream = state.stream(given)
    stream.require_active()
    shard = stream.shard(given.text("ShardToSplit"))
    _reshard(state, stream, [split_step(shard, given.hash_key("NewStartingHashKey"))])
    return Reply()


def merge_shards(state: State, given: Given) -> Reply:
    """Make one shard of two."""
    stream = state.stream(given)
    stream.require_active()
    one = stream.shard(given.text("ShardToMerge"))
    other = stream.shard(given.text("AdjacentShardToMerge"))
    _reshard(state, stream, [merge_step(one, other)])
    return Reply()


def update_shard_count(state: State, given: Given) -> Reply:
    """Cut and join shards until so many equal ones are open."""
    stream = state.stream(given)
    stream.require_active()
    if given.text("ScalingType") != "UNIFORM_SCALING":
        raise invalid("ScalingType must be UNIFORM_SCALING.")
    target = given.number("TargetShardCount", at_most=_SHARDS_MAX)
    ranges = stream.open_ranges()
    _reshard(state, stream, even_steps(ranges, target))
    return Reply(
        fields={
            "StreamName": stream.name,
            "StreamARN": stream.arn,
            "CurrentShardCount": len(ranges),
            "TargetShardCount": target,
        }
    )


def increase_retention(state: State, given: Given) -> Reply:
    """Keep records longer."""
    stream = state.stream(given)
    hours = _hours(given)
    stream.require_active()
    if hours < stream.retention_hours:
        raise invalid(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"shorter than existing retention period ({stream.retention_hours} hours)."
        )
    stream.retention_hours = hours
    return Reply()


def decrease_retention(state: State, given: Given) -> Reply:
    """Keep records less long."""
    stream = state.stream(given)
    hours = _hours(given)
    stream.require_active()
    if hours > stream.retention_hours:
        raise invalid(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"longer than existing retention period ({stream.retention_hours} hours)."
        )
    stream.retention_hours = hours
    return Reply()


def _hours(given: Given) -> int:
    hours = given.number("RetentionPeriodHours", at_most=_RETENTION_HOURS_MAX)
    if hours < _RETENTION_HOURS_MIN:
        raise invalid(f"RetentionPeriodHours must be at least 24, not {hours}.")
    return hours


def _reshard(state: State, stream: Stream, steps: list[Step]) -> None:
    now_ms = state.now_ms()
    stream.stale_calls = state.switches.stale_listings
    stream.stale_shape = state.switches.stale_listing
    stream.reshard(steps, ready_ms=now_ms + state.switches.reshard_ms, now_ms=now_ms)


def _summary(stream: Stream) -> dict[str, object]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }


def _described(stream: Stream) -> dict[str, object]:
    return _summary(stream) | {
        "RetentionPeriodHours": stream.retention_hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }
