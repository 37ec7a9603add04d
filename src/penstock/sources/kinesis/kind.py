"""Kinesis streams as a source kind: options, validation, and the output of SHOW.

Modules that send requests are imported inside the functions that use them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from penstock.clock import Clock
from penstock.errors import UserError
from penstock.model.job import JobState
from penstock.model.options import Reveal, all_options, option, resolve_references
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Origins, shown_value
from penstock.model.split import Amount, Progress, SplitState, SplitStatus, position_text
from penstock.model.text import format_count, format_duration, quoted_name
from penstock.sources.kinesis.shards import StreamMemory, inherit_memory, load_memory, readable
from penstock.sources.registry import source_options
from penstock.sources.source import (
    Place,
    ReadTask,
    ShowRequest,
    Source,
    SourceKind,
    SourceServices,
    SourceView,
    StartRequest,
    TaskReader,
)
from penstock.storage.options import require_both_keys

# Metadata columns of a row; ``*`` does not include them.
STREAM_COLUMNS = (
    Column(name="_shard", type=Primitive.STRING),
    Column(name="_sequence", type=Primitive.STRING),
    Column(name="_partition_key", type=Primitive.STRING),
    Column(name="_arrived_at", type=Primitive.TIMESTAMP),
    Column(name="_encryption_type", type=Primitive.STRING),
)


class ForeignRecords(StrEnum):
    """Handling of sub-records in an aggregate whose key belongs to another shard.

    After a split, an aggregate may contain records of both halves. Some producers resend
    these records, others do not.
    """

    REJECT = "reject"
    LOAD = "load"
    SKIP = "skip"


class CredentialsProvider(StrEnum):
    """Sources of credentials if the options contain none."""

    DEFAULT = "default"
    INSTANCE_PROFILE = "instance_profile"
    ENV = "env"
    SIMPLE = "simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOptions:
    """Stored options of FROM KINESIS; start positions are stored in progress instead."""

    region: str = option("Region of the stream, such as eu-west-1.", key="aws.region")
    stream: str = option("Name of the stream.", key="kinesis_stream")
    endpoint: str = option(
        "Endpoint URL of the service. By default, the endpoint of the region.",
        key="aws.endpoint",
        default="",
    )
    shards: str = option(
        "Shards to read, separated by commas. By default, all shards, including new ones.",
        key="kinesis_shards",
        default="",
    )
    access_key: str = option(
        "Access key. Without it, the default credentials chain of AWS is used.",
        key="aws.access_key",
        default="",
        secret=True,
    )
    secret_key: str = option(
        "Secret key that belongs to the access key.",
        key="aws.secret_key",
        default="",
        secret=True,
    )
    session_key: str = option(
        "Session token of temporary keys.", key="aws.session_key", default="", secret=True
    )
    role_arn: str = option("ARN of the role to assume.", key="aws.role_arn", default="")
    external_id: str = option(
        "External id that the role requires.", key="property.aws.external.id", default=""
    )
    provider: CredentialsProvider = option(
        "Where credentials come from if aws.access_key is not set.",
        key="property.aws.credentials.provider",
        default=CredentialsProvider.DEFAULT,
    )
    stream_arn: str = option(
        "ARN of a stream in another account. Its region must equal aws.region.",
        key="property.aws.kinesis.stream_arn",
        default="",
    )
    # Both timeouts together are less than the 10 s that a PAUSE waits for a runner.
    request_timeout_ms: int = option(
        "How long to wait for a response, in milliseconds.",
        key="property.aws.request.timeout.ms",
        default=6_000,
        at_least=1,
        at_most=60_000,
    )
    connection_timeout_ms: int = option(
        "How long to wait for a connection, in milliseconds.",
        key="property.aws.connection.timeout.ms",
        default=3_000,
        at_least=1,
        at_most=60_000,
    )
    page_records_max: int = option(
        "Maximum number of records in one response.",
        key="property.aws.kinesis.max_records",
        default=10_000,
        at_least=1,
        at_most=10_000,
    )
    page_shards_max: int = option(
        "Maximum number of shards in one page of a listing.",
        key="property.aws.kinesis.max_results",
        default=1_000,
        at_least=1,
        at_most=10_000,
    )
    foreign_records: ForeignRecords = option(
        "Whether to reject, load or skip records in an aggregate that belong to another shard. "
        "After a split, aggregates may contain such records.",
        key="kpl_foreign_records",
        default=ForeignRecords.REJECT,
    )
    # References for values that messages must not show; set together with values, never stored.
    origins: Origins = field(default=(), compare=False, metadata={"transient": True})

    @property
    def pinned(self) -> tuple[str, ...]:
        """The shards to read; empty for all shards."""
        return tuple(name.strip() for name in self.shards.split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisStart:
    """Options of FROM KINESIS that set start positions; a statement has at most one."""

    default: str = option(
        "Start position of all shards: TRIM_HORIZON, LATEST (the default), a time, or a "
        "sequence number.",
        key="property.kinesis_default_pos",
        default="",
    )
    by_shard: str = option(
        "Start positions of kinesis_shards, in the same order, separated by commas.",
        key="kinesis_shards_pos",
        default="",
    )
    at: str = option(
        "Start time of all shards.",
        key="property.aws.kinesis.timestamp",
        default="",
    )
    stored: str = option(
        "JSON of positions by shard, as SHOW CREATE ROUTINE LOAD prints them. CREATE needs a "
        "position for every shard. ALTER does not move the shards without a position.",
        key="property.kinesis_positions",
        default="",
    )


_REGION = re.compile(r"[a-z]{2}(-[a-z]+)?-[a-z]+-\d+")
_STREAM = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARN = re.compile(r"arn:[a-z-]+:kinesis:([a-z0-9-]+):\d{12}:stream/([A-Za-z0-9_.-]+)")
_ARN_EXAMPLE = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9a-f:.]+")


def revealed_stream(options: KinesisOptions, reveal: Reveal) -> KinesisOptions:
    """Return options with values instead of references; raise UserError if they conflict."""
    values = resolve_references(options, reveal, what="KINESIS")
    _require_form(values, "aws.region", _REGION, example="eu-west-1")
    _require_form(values, "kinesis_stream", _STREAM, example="orders")
    _check_credentials(values)
    _check_endpoint(values)
    if values.stream_arn:
        _check_arn(values)
    if len(set(values.pinned)) != len(values.pinned):
        shown = _shown(values, "kinesis_shards").strip('"')
        raise UserError(f'option "kinesis_shards" names a shard twice: {shown}')
    return values


def _require_form(
    options: KinesisOptions, key: str, form: re.Pattern[str], *, example: str
) -> re.Match[str]:
    found = form.fullmatch(dict(all_options(options))[key])
    if found is None:
        raise UserError(
            f'option "{key}" must be a value such as {example}, not {_shown(options, key)}'
        )
    return found


def _shown(options: KinesisOptions, key: str) -> str:
    """Return an option's value for messages, or its reference if the value is secret."""
    return shown_value(key, dict(all_options(options))[key], options.origins)


def _check_credentials(options: KinesisOptions) -> None:
    require_both_keys(
        ("aws.access_key", options.access_key), ("aws.secret_key", options.secret_key)
    )
    for key, text, needed, other in (
        ("aws.session_key", options.session_key, "aws.access_key", options.access_key),
        ("property.aws.external.id", options.external_id, "aws.role_arn", options.role_arn),
    ):
        if text and not other:
            raise UserError(f'option "{key}" requires "{needed}"')
    if options.provider is CredentialsProvider.SIMPLE and not options.access_key:
        raise UserError(
            'option "property.aws.credentials.provider" = simple requires "aws.access_key"'
        )
    if options.role_arn and not options.role_arn.startswith("arn:"):
        shown = _shown(options, "aws.role_arn")
        raise UserError(f'option "aws.role_arn" must be an ARN, not {shown}')


def _check_endpoint(options: KinesisOptions) -> None:
    endpoint = options.endpoint
    if "@" in endpoint:
        raise UserError(
            'option "aws.endpoint" must not contain a user name or a password',
            hint='Use "aws.access_key" and "aws.secret_key" instead.',
        )
    shown = _shown(options, "aws.endpoint")
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        raise UserError(
            f'option "aws.endpoint" must start with https:// or http://, not {shown}'
        )
    if endpoint and not _names_host(endpoint):
        raise UserError(
            f'option "aws.endpoint" must have a host and an optional port up to 65535: {shown}',
            hint="Write an address such as http://127.0.0.1:4567.",
        )


def _names_host(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:
        return False


def _check_arn(options: KinesisOptions) -> None:
    key = "property.aws.kinesis.stream_arn"
    found = _require_form(options, key, _ARN, example=_ARN_EXAMPLE)
    for other, value, arn_part in (
        ("aws.region", options.region, found[1]),
        ("kinesis_stream", options.stream, found[2]),
    ):
        if value != arn_part:
            names = shown_value(key, arn_part, options.origins)
            raise UserError(
                f'option "{key}" names {names}, but "{other}" is {_shown(options, other)}'
            )


# OtherMsg warns when the lag of a shard reaches this part of the retention.
_WARNING_RATIO = 0.8


def _options(state: JobState) -> KinesisOptions:
    options: KinesisOptions = source_options(state.definition.source)
    return options


def _merge(before: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Merge options; remove pinned shards if the stream changes."""
    merged = {**before, **given}
    place = ("kinesis_stream", "aws.region")
    moved = any(merged.get(key) != before.get(key) for key in place)
    if moved and "kinesis_shards" not in given:
        merged.pop("kinesis_shards", None)
    return merged


def _start(request: StartRequest) -> Progress | None:
    from penstock.sources.kinesis.start import resolve_start

    return resolve_start(request)


# The options that together identify a stream.
_PLACE = ("stream", "region", "endpoint", "stream_arn")


def _inherit(memory: str, before: JobState, after: JobState) -> str:
    """Return the memory for a job that continues on the same stream.

    Only this memory can prove that an idle shard lost no records.
    """
    old, new = _options(before), _options(after)
    if all(getattr(old, name) == getattr(new, name) for name in _PLACE):
        return inherit_memory(memory, before=before.progress, after=after.progress)
    return ""


def _shared(clock: Clock) -> object:
    from penstock.sources.kinesis.source import ReadBudgets

    return ReadBudgets(clock)


def _open(services: SourceServices) -> Source:
    from penstock.sources.kinesis.source import KinesisSource

    return KinesisSource(_options(services.state), services=services)


def _reader(task: ReadTask) -> TaskReader:
    from penstock.sources.kinesis.reader import KinesisReader

    return KinesisReader(task)


def _probe(options: KinesisOptions, values: KinesisOptions) -> None:
    from penstock.sources.kinesis.client import StreamClient, stream_access

    del options
    access = stream_access(values)
    StreamClient(access).send_once("describe_stream_summary", **access.naming)


def _statuses(request: ShowRequest) -> tuple[SplitStatus, ...]:
    """Return the state of every shard with its last known lag."""
    progress = request.state.progress
    memory = load_memory(request.memory, progress)
    by_shard = {one.shard: one for one in memory.shards}
    readable_ids = {split.split for split in readable(progress)}
    found = []
    for split in progress:
        if split.finished:
            found.append(SplitStatus(split=split.split, state=SplitState.FINISHED))
            continue
        state = SplitState.DRAINING if split.split in memory.closed else SplitState.OPEN
        known = by_shard.get(split.split)
        found.append(
            SplitStatus(
                split=split.split,
                state=state if split.split in readable_ids else SplitState.WAITING,
                remaining=Amount(lag=known.lag if known else None),
                seen_at=known.at if known else None,
            )
        )
    return tuple(found)


def _show(request: ShowRequest) -> SourceView:
    state = request.state
    memory, options = load_memory(request.memory, state.progress), _options(state)
    named = {"region": options.region, "stream": options.stream}
    if options.endpoint:
        named["endpoint"] = options.endpoint
    unfinished = sorted(split.split for split in state.progress if not split.finished)
    still_open = [shard for shard in unfinished if shard not in memory.closed]
    # A new job that starts at these positions loads no record twice.
    positions = {split.split: position_text(split.position) for split in state.progress}
    lags = [one.remaining.lag for one in _statuses(request)]
    known = [max(0, round(lag.total_seconds() * 1000)) for lag in lags if lag is not None]
    return SourceView(
        properties=named
        | {
            "openKinesisShards": ",".join(still_open),
            "closedKinesisShards": ",".join(s for s in unfinished if s in memory.closed),
        },
        statistic={
            "openShardNum": len(still_open),
            "closedShardNum": len(unfinished) - len(still_open),
            "trackedShardNum": len(state.progress),
            "cachedMillisBehindLatestShardNum": len(known),
            "totalMillisBehindLatest": sum(known) if known else -1,
            "maxMillisBehindLatest": max(known, default=-1),
        },
        messages=tuple(_messages(request, options, memory)),
        start=(("property.kinesis_positions", json.dumps(positions, ensure_ascii=False)),),
    )


def _messages(
    request: ShowRequest, options: KinesisOptions, memory: StreamMemory
) -> Iterator[str]:
    state = request.state
    if options.pinned and all(split.finished for split in state.progress):
        yield (
            "all pinned shards finished; to read their child shards, PAUSE the load, run "
            f"ALTER ROUTINE LOAD FOR {quoted_name(state.name)} FROM KINESIS "
            "('kinesis_shards' = ''), then RESUME the load"
        )
    retention = memory.retention
    unfinished = {split.split for split in state.progress if not split.finished}
    for one in memory.shards:
        if retention is None or one.shard not in unfinished or one.lag is None:
            continue
        # The lag may have grown since the last response.
        age = max(request.at - one.at, timedelta(0)) if one.at else timedelta(0)
        limit = retention * _WARNING_RATIO
        if one.lag + age >= limit:
            lag = f"lags {format_duration(one.lag)}"
            if one.lag < limit:
                lag = (
                    f"may lag {format_duration(one.lag + age)} (last polled "
                    f"{format_duration(age)} ago)"
                )
            yield (
                f"shard {one.shard} {lag}; retention is {format_duration(retention)}: "
                "unread records will expire"
            )


def _position(progress: Progress) -> str:
    """Return the position of the only unfinished shard, or the number of shards."""
    reading = [split for split in progress if not split.finished]
    if len(reading) == 1:
        return f"{reading[0].split} {position_text(reading[0].position)}"
    finished = len(progress) - len(reading)
    shown = f"{format_count(len(reading), 'shard')}, see SHOW SHARDS"
    return shown + (f" ({finished} finished)" if finished else "")


def _place_text(place: Place) -> str:
    shard, sequence = place
    return f"shard {shard}" + ("" if sequence is None else f", record {sequence}")


KINESIS = SourceKind(
    name="KINESIS",
    functions=("KINESIS",),
    job_kinds=("ROUTINE_LOAD",),
    split_noun="shard",
    waiting_noun="shard",
    measures=("time",),
    options=KinesisOptions,
    start_options=KinesisStart,
    aliases={"kinesis_endpoint": "aws.endpoint"},
    metadata_columns=STREAM_COLUMNS,
    place_columns=(
        Column(name="shard", type=Primitive.STRING),
        Column(name="sequence", type=Primitive.STRING),
    ),
    needs=("boto3",),
    decodes=True,
    place=lambda options: options.stream,
    place_text=_place_text,
    position=_position,
    reveal=revealed_stream,
    merge=_merge,
    # The columns are those of the statement; ``start`` checks the stream.
    define=lambda _draft: (),
    start=_start,
    inherit=_inherit,
    shared=_shared,
    open=_open,
    reader=_reader,
    probe=_probe,
    show=_show,
    statuses=_statuses,
)
