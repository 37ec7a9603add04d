"""Send requests to Kinesis, retry them, and classify failures.

Messages contain the error code of a response, but never its text. The text may contain data
that a user sent.

Invariant: there is one boto3 client for each process and configuration. Creating a client is
slow and not thread-safe. Using a client is thread-safe.
"""

import os
import random
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from penstock.aws.clients import SharedClients, aws_errors, open_client
from penstock.aws.credentials import AwsKeys, aws_failures, credentials_for
from penstock.clock import Clock, SystemClock
from penstock.errors import ExternalError, StoppedError
from penstock.model.options import all_options, from_sealed_pairs
from penstock.model.secrets import Sealed
from penstock.sources.kinesis.kind import CredentialsProvider, KinesisOptions

_ACTIONS = {
    "describe_stream_summary": "kinesis:DescribeStreamSummary",
    "get_records": "kinesis:GetRecords",
    "get_shard_iterator": "kinesis:GetShardIterator",
    "list_shards": "kinesis:ListShards",
}
# Requests about a stream as a whole.
_STREAM_OPERATIONS = ("describe_stream_summary", "list_shards")
_SKEWED = re.compile(r"Signature (?:expired|not yet current): (\S+) is (?:now )?\w+ than (\S+)")
_SERVER_FAULT = 500


class Kind(StrEnum):
    """Kinds of failed requests; each kind is handled differently."""

    THROTTLED = "throttled"
    FAULT = "fault"
    EXPIRED_ITERATOR = "expired iterator"
    EXPIRED_NEXT_TOKEN = "expired next token"  # noqa: S105 - A kind, not a password.
    EXPIRED_TOKEN = "expired token"  # noqa: S105 - A kind, not a password.
    NOT_FOUND = "not found"
    BAD_ARGUMENT = "bad argument"
    REFUSED = "refused"
    OTHER = "other"


_KIND_BY_CODE = {
    "AccessDenied": Kind.REFUSED,
    "AccessDeniedException": Kind.REFUSED,
    "ExpiredIteratorException": Kind.EXPIRED_ITERATOR,
    "ExpiredNextTokenException": Kind.EXPIRED_NEXT_TOKEN,
    "ExpiredToken": Kind.EXPIRED_TOKEN,
    "ExpiredTokenException": Kind.EXPIRED_TOKEN,
    "IncompleteSignature": Kind.REFUSED,
    "InvalidArgumentException": Kind.BAD_ARGUMENT,
    "InvalidClientTokenId": Kind.REFUSED,
    "InvalidSignatureException": Kind.REFUSED,
    "KMSThrottlingException": Kind.THROTTLED,
    "LimitExceededException": Kind.THROTTLED,
    "MissingAuthenticationTokenException": Kind.REFUSED,
    "OptInRequired": Kind.REFUSED,
    "ProvisionedThroughputExceededException": Kind.THROTTLED,
    "RequestLimitExceeded": Kind.THROTTLED,
    "ResourceNotFoundException": Kind.NOT_FOUND,
    "SignatureDoesNotMatch": Kind.REFUSED,
    "Throttling": Kind.THROTTLED,
    "ThrottlingException": Kind.THROTTLED,
    "TooManyRequestsException": Kind.THROTTLED,
    "UnrecognizedClientException": Kind.REFUSED,
    "ValidationException": Kind.BAD_ARGUMENT,
}


class StreamError(ExternalError):
    """A request that the service refused, or that got no response."""

    kind: Kind = Kind.OTHER

    @property
    def transient(self) -> bool:
        """Whether a retry of the same request may succeed."""
        return self.kind in (Kind.THROTTLED, Kind.FAULT)


def _stream_error(error: Exception, *, operation: str, place: str) -> StreamError:
    """Convert a boto3 error to a StreamError."""
    response = getattr(error, "response", None)
    if response is None:
        # The network failed, a proxy failed, or no credentials were found.
        failure = StreamError(
            f"{place} did not respond",
            detail=f"The request failed with {type(error).__name__}.",
            hint="Check aws.region, aws.endpoint, the network and the credentials.",
        )
        failure.kind = Kind.FAULT
        return failure
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    fault = Kind.FAULT if status >= _SERVER_FAULT else Kind.OTHER
    kind = _KIND_BY_CODE.get(code, fault)
    gone = kind is Kind.NOT_FOUND and operation in _STREAM_OPERATIONS
    fact = "does not exist" if gone else f"refused {_ACTIONS[operation]}"
    detail, hint = f"{code or 'Response without an error code'} (HTTP {status}).", ""
    if skew := _SKEWED.search(str(response.get("Error", {}).get("Message", ""))):
        detail = (
            f"The clock of this machine is wrong: it signed the request at {skew[1]}, but the "
            f"limit of the service is {skew[2]}."
        )
        hint = "Correct the clock of this machine. To compare it, run penstock doctor."
    elif kind is Kind.REFUSED:
        hint = (
            f"Allow {_ACTIONS[operation]} for the access key or the role of the job. "
            "To change the keys of a secret, use ALTER SECRET."
        )
    elif code.startswith("KMS"):
        hint = "Check the KMS key of the stream. The job resumes when the key works again."
    failure = StreamError(f"{place} {fact}", detail=detail, hint=hint)
    failure.kind = kind
    return failure


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAccess:
    """Name and address of a stream, with the credentials and timeouts of its requests."""

    keys: AwsKeys
    stream: str
    stream_arn: str
    endpoint: str
    # Names for messages, without values that come from a secret or the environment.
    shown: str
    region_shown: str
    place_shown: str
    request_timeout: timedelta
    connect_timeout: timedelta
    # Shards in one page of a listing.
    page_shards_max: int

    @property
    def region(self) -> str:
        """The region of the stream ARN; without an ARN, the configured region."""
        return self.stream_arn.split(":")[3] if self.stream_arn else self.keys.region

    @property
    def naming(self) -> dict[str, str]:
        """The request arguments that name the stream."""
        if self.stream_arn:
            return {"StreamARN": self.stream_arn}
        return {"StreamName": self.stream}


# The names of the providers in botocore.
_PROVIDERS = {
    CredentialsProvider.DEFAULT: "",
    CredentialsProvider.SIMPLE: "",
    CredentialsProvider.ENV: "env",
    CredentialsProvider.INSTANCE_PROFILE: "iam-role",
}


def stream_access(values: KinesisOptions) -> StreamAccess:
    """Return the access that options describe; the options must contain no references."""
    names = {**dict(all_options(values)), **dict(values.origins)}
    named_by = "property.aws.kinesis.stream_arn" if values.stream_arn else "kinesis_stream"
    default_host = f"kinesis.{names['aws.region']}.amazonaws.com"
    return StreamAccess(
        keys=AwsKeys(
            region=values.region,
            access_key=values.access_key,
            secret_key=values.secret_key,
            session_token=values.session_key,
            role_arn=values.role_arn,
            role_shown=names["aws.role_arn"],
            external_id=values.external_id,
            provider=_PROVIDERS[values.provider],
            needed_for=f'stream "{names["kinesis_stream"]}"',
            access_key_option="aws.access_key",
            secret_key_option="aws.secret_key",  # noqa: S106 - A name, not a password.
            external_id_option="property.aws.external.id",
        ),
        stream=values.stream,
        stream_arn=values.stream_arn,
        endpoint=values.endpoint,
        shown=f'stream "{names[named_by]}"',
        region_shown=names["aws.region"],
        place_shown=names["aws.endpoint"] or default_host,
        request_timeout=timedelta(milliseconds=values.request_timeout_ms),
        connect_timeout=timedelta(milliseconds=values.connection_timeout_ms),
        page_shards_max=values.page_shards_max,
    )


@lru_cache(maxsize=64)
def unsealed_access(sealed: Sealed) -> StreamAccess:
    """Decrypt the access that a task received."""
    from penstock.secrets.sealing import unsealed_with

    values = unsealed_with(sealed.key_file, sealed.text)
    return stream_access(from_sealed_pairs(KinesisOptions, values, what="KINESIS"))


def _open_client(access: StreamAccess) -> Any:  # noqa: ANN401 - boto3 has no types.
    with aws_failures(
        f"no client could be created for {access.shown} at {access.place_shown}",
        hint="Check aws.region, aws.endpoint and the AWS configuration of this machine.",
    ):
        return open_client(
            "kinesis",
            keys=access.keys,
            region=access.region,
            endpoint=access.endpoint,
            connect_timeout=access.connect_timeout,
            read_timeout=access.request_timeout,
        )


# All jobs of a process share clients, because a client takes 8 MB.
CLIENTS: SharedClients[StreamAccess, Any] = SharedClients(_open_client, clock=SystemClock())
os.register_at_fork(after_in_child=CLIENTS.abandon)

# A request is retried for this long. After that, the epoch is retried.
GIVE_UP_AFTER = timedelta(seconds=20)
_DELAY_FIRST = timedelta(milliseconds=100)
_DELAY_MAX = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Retry policy of requests; setting ``stop`` ends every wait."""

    clock: Clock = field(default_factory=SystemClock)
    give_up_after: timedelta = GIVE_UP_AFTER
    stop: threading.Event = field(default_factory=threading.Event)
    jitter: Callable[[], float] = random.random

    def delay(self, tries: int) -> timedelta:
        """Return a random delay, up to a limit that grows with the number of tries."""
        longest: timedelta = min(_DELAY_MAX, _DELAY_FIRST * 2 ** min(tries, 10))
        return longest * self.jitter()

    def wait(self, delay: timedelta) -> None:
        """Wait for a delay; raise StoppedError if ``stop`` is set."""
        if self.clock.wait(self.stop, delay):
            raise StoppedError("stopped while waiting for the stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Data of a response, and the time at which the service sent it."""

    data: Mapping[str, Any]
    at: datetime


class StreamClient:
    """Client of one stream that retries and counts requests; thread-safe."""

    def __init__(self, access: StreamAccess, retries: Retries | None = None) -> None:
        self.access = access
        self.retries = retries or Retries()
        self.requests = 0
        self._counting = threading.Lock()

    def send(self, operation: str, **arguments: object) -> Response:
        """Send a request; retry transient failures until ``give_up_after`` has passed."""
        clock = self.retries.clock
        deadline = clock.monotonic() + self.retries.give_up_after.total_seconds()
        renewed = False
        tries = 0
        while True:
            try:
                return self.send_once(operation, **arguments)
            except StreamError as error:
                if error.kind is Kind.EXPIRED_TOKEN and not renewed:
                    renewed = True
                    credentials_for(self.access.keys).invalidate()
                    CLIENTS.discard(self.access)
                    continue
                left = timedelta(seconds=deadline - clock.monotonic())
                if not error.transient or left <= timedelta(0):
                    raise
            self.retries.wait(min(self.retries.delay(tries), left))
            tries += 1

    def send_once(self, operation: str, **arguments: object) -> Response:
        """Send one request; raise StreamError if it fails."""
        with self._counting:
            self.requests += 1
        try:
            with CLIENTS.borrow(self.access) as client:
                data = getattr(client, operation)(**arguments)
        except aws_errors() as error:
            place = f"{self.access.shown} at {self.access.place_shown}"
            raise _stream_error(error, operation=operation, place=place) from None
        # The Date header has whole seconds.
        date = data.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        at = parsedate_to_datetime(date) if date else datetime.now(UTC).replace(microsecond=0)
        return Response(data=data, at=at)
