"""Operations that create, describe, reshard and delete streams."""

from tests.servers.kinesis.errors import invalid_argument
from tests.servers.kinesis.parameters import Parameters
from tests.servers.kinesis.reply import Reply
from tests.servers.kinesis.resharding import Step, even_steps, merge_step, split_step
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import Stream, StreamStatus

_SHARDS_MAX = 10_000
_ON_DEMAND_SHARDS = 4
_RETENTION_HOURS_MIN, _RETENTION_HOURS_MAX = 24, 8760


def create_stream(state: State, parameters: Parameters) -> Reply:
    """Create a stream."""
    mode = "PROVISIONED"
    if parameters.has("StreamModeDetails"):
        mode = parameters.inner("StreamModeDetails").text("StreamMode")
    default = _ON_DEMAND_SHARDS if mode == "ON_DEMAND" else None
    count = parameters.number("ShardCount", default=default, at_most=_SHARDS_MAX)
    record_kib = parameters.number("MaxRecordSizeInKiB", default=1024, at_most=10_240)
    stream = state.create_stream(parameters.text("StreamName"), count)
    stream.mode = mode
    stream.record_bytes_max = record_kib * 1024
    return Reply()


def delete_stream(state: State, parameters: Parameters) -> Reply:
    """Start the deletion of a stream."""
    state.stream(parameters).delete(ready_ms=state.now_ms() + state.switches.delete_ms)
    return Reply()


def describe_stream(state: State, parameters: Parameters) -> Reply:
    """Return the description of a stream with a page of its shards."""
    stream = state.stream(parameters)
    shards_max = parameters.number("Limit", default=100, at_most=10_000)
    after = parameters.text_or_empty("ExclusiveStartShardId")
    later = [shard for shard in stream.listed() if shard.shard_id > after]
    described = _described(stream) | {
        "Shards": [shard.described() for shard in later[:shards_max]],
        "HasMoreShards": len(later) > shards_max,
    }
    return Reply(fields={"StreamDescription": described})


def describe_stream_summary(state: State, parameters: Parameters) -> Reply:
    """Return the description of a stream without its shards."""
    stream = state.stream(parameters)
    open_shards = 0 if stream.status is StreamStatus.CREATING else len(stream.open_shards())
    described = _described(stream) | {
        "OpenShardCount": open_shards,
        "ConsumerCount": 0,
        "MaxRecordSizeInKiB": stream.record_bytes_max // 1024,
    }
    return Reply(fields={"StreamDescriptionSummary": described})


def list_streams(state: State, parameters: Parameters) -> Reply:
    """Return a page of the streams, sorted by name."""
    streams_max = parameters.number("Limit", default=100, at_most=10_000)
    after = parameters.text_or_empty("NextToken") or parameters.text_or_empty(
        "ExclusiveStartStreamName"
    )
    later = [stream for stream in state.streams() if stream.name > after]
    page, more = later[:streams_max], len(later) > streams_max
    fields: dict[str, object] = {
        "StreamNames": [stream.name for stream in page],
        "HasMoreStreams": more,
        "StreamSummaries": [_summary(stream) for stream in page],
    }
    return Reply(fields=fields | ({"NextToken": page[-1].name} if more else {}))


def split_shard(state: State, parameters: Parameters) -> Reply:
    """Split a shard."""
    stream = state.stream(parameters)
    stream.require_active()
    shard = stream.shard(parameters.text("ShardToSplit"))
    _reshard(state, stream, [split_step(shard, parameters.hash_key("NewStartingHashKey"))])
    return Reply()


def merge_shards(state: State, parameters: Parameters) -> Reply:
    """Merge two shards."""
    stream = state.stream(parameters)
    stream.require_active()
    one = stream.shard(parameters.text("ShardToMerge"))
    other = stream.shard(parameters.text("AdjacentShardToMerge"))
    _reshard(state, stream, [merge_step(one, other)])
    return Reply()


def update_shard_count(state: State, parameters: Parameters) -> Reply:
    """Split and merge shards until ``TargetShardCount`` equal shards are open."""
    stream = state.stream(parameters)
    stream.require_active()
    if parameters.text("ScalingType") != "UNIFORM_SCALING":
        raise invalid_argument("ScalingType must be UNIFORM_SCALING.")
    target = parameters.number("TargetShardCount", at_most=_SHARDS_MAX)
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


def increase_retention(state: State, parameters: Parameters) -> Reply:
    """Increase the retention of a stream."""
    stream = state.stream(parameters)
    hours = _hours(parameters)
    stream.require_active()
    if hours < stream.retention_hours:
        raise invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"shorter than existing retention period ({stream.retention_hours} hours)."
        )
    stream.retention_hours = hours
    return Reply()


def decrease_retention(state: State, parameters: Parameters) -> Reply:
    """Decrease the retention of a stream."""
    stream = state.stream(parameters)
    hours = _hours(parameters)
    stream.require_active()
    if hours > stream.retention_hours:
        raise invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"longer than existing retention period ({stream.retention_hours} hours)."
        )
    stream.retention_hours = hours
    return Reply()


def _hours(parameters: Parameters) -> int:
    hours = parameters.number("RetentionPeriodHours", at_most=_RETENTION_HOURS_MAX)
    if hours < _RETENTION_HOURS_MIN:
        raise invalid_argument(f"RetentionPeriodHours must be at least 24, not {hours}.")
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
