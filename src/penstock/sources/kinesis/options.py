"""Options of a stream of Kinesis: which one, who asks, and how its records are taken."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from penstock.model.options import option
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Origins

# Both together are less than the 10 s that a PAUSE waits for a runner.
CONNECTION_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 6_000

# What is known of a row beside its content; no part of ``*``.
STREAM_COLUMNS = (
    Column(name="_shard", type=Primitive.STRING),
    Column(name="_sequence", type=Primitive.STRING),
    Column(name="_partition_key", type=Primitive.STRING),
    Column(name="_arrived_at", type=Primitive.TIMESTAMP),
    Column(name="_encryption_type", type=Primitive.STRING),
)


class ForeignRecords(StrEnum):
    """What happens to a record inside another whose key belongs to another shard.

    After a split an aggregate may hold records of both halves. Some producers send these again,
    others do not.
    """

    REJECT = "reject"
    LOAD = "load"
    SKIP = "skip"


class CredentialsProvider(StrEnum):
    """Where credentials come from that are not given."""

    DEFAULT = "default"
    INSTANCE_PROFILE = "instance_profile"
    ENV = "env"
    SIMPLE = "simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOptions:
    """Options of FROM KINESIS that stay; positions are commands and are kept in progress."""

    region: str = option("Region of the stream, such as eu-west-1.", key="aws.region")
    stream: str = option("Name of the stream.", key="kinesis_stream")
    endpoint: str = option(
        "Address of the service, if it is not that of the region.",
        key="aws.endpoint",
        default="",
    )
    shards: str = option(
        "Shards to read, separated by commas; then no others are looked for.",
        key="kinesis_shards",
        default="",
    )
    access_key: str = option(
        "Access key; without it the default chain is asked.",
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
    role_arn: str = option("Role that is assumed.", key="aws.role_arn", default="")
    external_id: str = option(
        "External id that the role asks for.", key="property.aws.external.id", default=""
    )
    provider: CredentialsProvider = option(
        "Where credentials come from that are not given.",
        key="property.aws.credentials.provider",
        default=CredentialsProvider.DEFAULT,
    )
    stream_arn: str = option(
        "ARN of the stream, for one of another account; its region must be aws.region.",
        key="property.aws.kinesis.stream_arn",
        default="",
    )
    request_timeout_ms: int = option(
        "How long to wait for an answer, in milliseconds.",
        key="property.aws.request.timeout.ms",
        default=REQUEST_TIMEOUT_MS,
        at_least=1,
        at_most=60_000,
    )
    connection_timeout_ms: int = option(
        "How long to wait for a connection, in milliseconds.",
        key="property.aws.connection.timeout.ms",
        default=CONNECTION_TIMEOUT_MS,
        at_least=1,
        at_most=60_000,
    )
    page_records_max: int = option(
        "Most records in one answer.",
        key="property.aws.kinesis.max_records",
        default=10_000,
        at_least=1,
        at_most=10_000,
    )
    page_shards_max: int = option(
        "Most shards in one page of a listing.",
        key="property.aws.kinesis.max_results",
        default=1_000,
        at_least=1,
        at_most=10_000,
    )
    foreign_records: ForeignRecords = option(
        "What happens to records inside an aggregate that belong to another shard, as they do "
        "after a split: reject, load or skip them.",
        key="kpl_foreign_records",
        default=ForeignRecords.REJECT,
    )
    # Where values come from that messages name by that alone; only beside values, never stored.
    origins: Origins = field(default=(), compare=False, metadata={"transient": True})

    @property
    def pinned(self) -> tuple[str, ...]:
        """The shards that are read and no others; empty for all."""
        return tuple(name.strip() for name in self.shards.split(",") if name.strip())

    @property
    def request_timeout(self) -> timedelta:
        """How long to wait for an answer."""
        return timedelta(milliseconds=self.request_timeout_ms)

    @property
    def connection_timeout(self) -> timedelta:
        """How long to wait for a connection."""
        return timedelta(milliseconds=self.connection_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionOptions:
    """Options of FROM KINESIS that say where to begin: commands, of which one may be given."""

    default: str = option(
        "Where all shards begin: TRIM_HORIZON, LATEST (what is taken when none is given), a "
        "time, or a sequence number.",
        key="property.kinesis_default_pos",
        default="",
    )
    by_shard: str = option(
        "Where each of kinesis_shards begins, in their order, separated by commas.",
        key="kinesis_shards_pos",
        default="",
    )
    at: str = option(
        "The time at which all shards begin.",
        key="property.aws.kinesis.timestamp",
        default="",
    )
    stored: str = option(
        "JSON of typed positions by shard, as SHOW CREATE ROUTINE LOAD writes them. It names "
        "every shard; at ALTER those that it does not name stay where they are.",
        key="property.kinesis_positions",
        default="",
    )
