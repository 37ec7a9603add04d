"""Send single requests to Kinesis, retry them, and classify failures.

The text of an answer is not repeated, but for its code: it may hold what a person sent.

Invariant: a client is made once for all threads that want it, and whoever makes one holds up
nobody who wants another. One that nobody has used for a while is closed; one in use never is.

Invariant: one boto3 client for each process and configuration. Making one is slow and not safe
for threads; using one is.
"""

import os
import random
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from penstock.aws.clients import aws_errors, open_client
from penstock.aws.credentials import AwsKeys, aws_failures, credentials_for
from penstock.clock import Clock, SystemClock
from penstock.errors import Code, ExternalError, StoppedError
from penstock.sources.kinesis.kind import CONNECTION_TIMEOUT_MS, REQUEST_TIMEOUT_MS

_ACTIONS = {
    "describe_stream_summary": "kinesis:DescribeStreamSummary",
    "get_records": "kinesis:GetRecords",
    "get_shard_iterator": "kinesis:GetShardIterator",
    "list_shards": "kinesis:ListShards",
}
_THROTTLED = frozenset(
    {
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_REFUSED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_SKEWED = re.compile(r"Signature (?:expired|not yet current): (\S+) is (?:now )?\w+ than (\S+)")
_SERVER_FAULT = 500
# What is asked of a stream as a whole.
_OF_STREAMS = ("describe_stream_summary", "list_shards")


class Kind(StrEnum):
    """What can be done about a refusal."""

    THROTTLED = "throttled"
    FAULT = "fault"
    EXPIRED_ITERATOR = "expired iterator"
    EXPIRED_NEXT_TOKEN = "expired next token"  # noqa: S105 - A kind and no password.
    EXPIRED_TOKEN = "expired token"  # noqa: S105 - A kind and no password.
    NOT_FOUND = "not found"
    BAD_ARGUMENT = "bad argument"
    REFUSED = "refused"
    OTHER = "other"


_KIND_BY_CODE = {
    **dict.fromkeys(_THROTTLED, Kind.THROTTLED),
    **dict.fromkeys(_REFUSED, Kind.REFUSED),
    "ExpiredIteratorException": Kind.EXPIRED_ITERATOR,
    "ExpiredNextTokenException": Kind.EXPIRED_NEXT_TOKEN,
    "ExpiredToken": Kind.EXPIRED_TOKEN,
    "ExpiredTokenException": Kind.EXPIRED_TOKEN,
    "InvalidArgumentException": Kind.BAD_ARGUMENT,
    "ResourceNotFoundException": Kind.NOT_FOUND,
    "ValidationException": Kind.BAD_ARGUMENT,
}


class StreamError(ExternalError):
    """A request that was refused or got no answer."""

    code_default = Code.GET_REMOTE_DATA_ERROR
    kind: Kind = Kind.OTHER

    @property
    def heals(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.kind in (Kind.THROTTLED, Kind.FAULT)


def failure_of(error: Exception, *, operation: str, access: str) -> StreamError:
    """Turn an error of boto3 into one of ours."""
    answer = getattr(error, "response", None)
    if answer is None:
        # The network, a proxy, or credentials that were not found.
        failure = StreamError(
            f"{access} did not answer",
            detail=f"{type(error).__name__}.",
            hint="Check aws.region, aws.endpoint, the network and the credentials.",
        )
        failure.kind = Kind.FAULT
        return failure
    code = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = str(answer.get("Error", {}).get("Message", ""))
    gone = _KIND_BY_CODE.get(code) is Kind.NOT_FOUND and operation in _OF_STREAMS
    told = "does not exist" if gone else f"refused {_ACTIONS.get(operation, operation)}"
    failure = StreamError(
        f"{access} {told}",
        detail=_detail(code, text, status=status),
        hint=_hint(code, text, operation=operation),
    )
    failure.kind = kind_of(code, status=status)
    return failure


def kind_of(code: str, *, status: int) -> Kind:
    """Tell what an error code of the service means."""
    if code in _KIND_BY_CODE:
        return _KIND_BY_CODE[code]
    return Kind.FAULT if status >= _SERVER_FAULT else Kind.OTHER


def _detail(code: str, text: str, *, status: int) -> str:
    skew = _SKEWED.search(text)
    if skew is not None:
        return f"This clock is wrong: it signed at {skew[1]}, the service allows {skew[2]}."
    return f"{code or 'An answer without a code'} (HTTP {status})."


def _hint(code: str, text: str, *, operation: str) -> str:
    if _SKEWED.search(text):
        return "Set the clock of this machine; penstock doctor compares it."
    if code in _REFUSED:
        return (
            f"Allow {_ACTIONS.get(operation, operation)} for the keys or the role of the job; "
            "a secret is changed with ALTER SECRET."
        )
    if code.startswith("KMS"):
        return "Look at the KMS key of the stream; the job resumes by itself once it works."
    return ""


# Longer than any load waits between two looks. The client of a load that was stopped, or of
# keys that were changed, takes 8 MB.
IDLE_MAX = timedelta(minutes=10)


class Closeable(Protocol):
    """What is open until it is closed."""

    def close(self) -> None:
        """Give back what it holds."""
        ...


Client = TypeVar("Client", bound=Closeable)
Configuration = TypeVar("Configuration", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Place(Generic[Client]):
    """Where one client is, or will be."""

    making: threading.Lock = field(default_factory=threading.Lock)
    client: Client | None = None
    users: int = 0
    used_at: float = 0.0

    def close(self) -> None:
        if self.client is not None:
            self.client.close()


class Clients(Generic[Configuration, Client]):
    """Lends clients to any thread; a forked process must not use what its parent had opened."""

    def __init__(self, make: Callable[[Configuration], Client], *, clock: Clock) -> None:
        self._make = make
        self._clock = clock
        # Held for a moment, and never while anybody waits for a network.
        self._lock = threading.Lock()
        # The one that was used last comes last.
        self._places: dict[Configuration, _Place[Client]] = {}

    @contextmanager
    def lent(self, configuration: Configuration) -> Iterator[Client]:
        """Give the client of a configuration; it is not closed before it is given back."""
        place = self._taken(configuration)
        try:
            yield self._client_of(place, configuration)
        finally:
            self._give_back(configuration, place)

    def forget(self, configuration: Configuration) -> None:
        """Make another client when the configuration is asked for again."""
        with self._lock:
            place = self._places.pop(configuration, None)
            left = [place] if place is not None and not place.users else []
        _close(left)

    def close(self) -> None:
        """Forget all clients."""
        for configuration in list(self._places):
            self.forget(configuration)

    def _taken(self, configuration: Configuration) -> _Place[Client]:
        with self._lock:
            place = self._places.pop(configuration, None) or _Place()
            self._places[configuration] = place
            place.users += 1
            return place

    def _client_of(self, place: _Place[Client], configuration: Configuration) -> Client:
        if place.client is None:
            with place.making:
                if place.client is None:
                    place.client = self._make(configuration)
        return place.client

    def _give_back(self, configuration: Configuration, place: _Place[Client]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            place.users -= 1
            place.used_at = now
            forgotten = self._places.get(configuration) is not place
            left = [place] if forgotten and not place.users else []
            left += [self._places.pop(old) for old in self._idle(now)]
        _close(left)

    def _idle(self, now: float) -> list[Configuration]:
        return [
            configuration
            for configuration, place in self._places.items()
            if not place.users and now - place.used_at > IDLE_MAX.total_seconds()
        ]


def _close(places: list[_Place[Client]]) -> None:
    for place in places:
        place.close()


class ClientsByProcess(Generic[Configuration, Client]):
    """The clients of whichever process asks; those of a parent stay as they were."""

    def __init__(self, open_clients: Callable[[], Clients[Configuration, Client]]) -> None:
        self._open_clients = open_clients
        self._by_process: dict[int, Clients[Configuration, Client]] = {}

    def of_this_process(self) -> Clients[Configuration, Client]:
        """Answer the clients of the calling process."""
        found = self._by_process.get(os.getpid())
        # If two threads come first at once, both get what one of them has set.
        return found or self._by_process.setdefault(os.getpid(), self._open_clients())


_HINT_SETTINGS = "Check aws.region, aws.endpoint and the settings of AWS on this machine."


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAccess:
    """Which stream is asked, where it is, and who asks."""

    keys: AwsKeys
    stream: str = ""
    stream_arn: str = ""
    endpoint: str = ""
    # How messages name them, if not by their values.
    stream_shown: str = ""
    region_shown: str = ""
    endpoint_shown: str = ""
    request_timeout: timedelta = timedelta(milliseconds=REQUEST_TIMEOUT_MS)
    connect_timeout: timedelta = timedelta(milliseconds=CONNECTION_TIMEOUT_MS)

    @property
    def region(self) -> str:
        """The region that is asked: that of the ARN, if there is one."""
        return self.stream_arn.split(":")[3] if self.stream_arn else self.keys.region

    @property
    def naming(self) -> dict[str, str]:
        """How requests name the stream."""
        if self.stream_arn:
            return {"StreamARN": self.stream_arn}
        return {"StreamName": self.stream}

    @property
    def told(self) -> str:
        """How messages name the stream."""
        return f'stream "{self.stream_shown or self.stream_arn or self.stream}"'

    @property
    def told_region(self) -> str:
        """How messages name the region."""
        return self.region_shown or self.region

    @property
    def told_place(self) -> str:
        """How messages name the address of the service."""
        own = f"kinesis.{self.told_region}.amazonaws.com"
        return self.endpoint_shown or self.endpoint or own


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the service said, and what its clock showed then."""

    data: Mapping[str, Any]
    at: datetime


class StreamClient:
    """Sends single requests to the service."""

    def __init__(self, access: StreamAccess) -> None:
        self.access = access
        self._count = 0
        self._lock = threading.Lock()

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._count

    def ask(self, operation: str, **arguments: object) -> Answer:
        """Send one request; an error of the service or the network is one of ours."""
        with self._lock:
            self._count += 1
        try:
            with CLIENTS.of_this_process().lent(self.access) as client:
                data = getattr(client, operation)(**arguments)
        except aws_errors() as error:
            raise failure_of(error, operation=operation, access=_told(self.access)) from None
        return Answer(data=data, at=_server_time(data))

    def forget_credentials(self) -> None:
        """Ask for new credentials: the service took these for old."""
        credentials_for(self.access.keys).forget()
        CLIENTS.of_this_process().forget(self.access)


def _opened(access: StreamAccess) -> Any:  # noqa: ANN401 - boto3 has no types.
    with aws_failures(f"{_told(access)} could not be asked", hint=_HINT_SETTINGS):
        return open_client(
            "kinesis",
            keys=access.keys,
            region=access.region,
            endpoint=access.endpoint,
            connect_timeout=access.connect_timeout,
            read_timeout=access.request_timeout,
        )


# The one thing that is shared by all loads of a process: a client each would take 8 MB.
CLIENTS: ClientsByProcess[StreamAccess, Any] = ClientsByProcess(
    lambda: Clients(_opened, clock=SystemClock())
)


def _server_time(data: Mapping[str, Any]) -> datetime:
    """Answer the service's clock, which counts whole seconds."""
    headers = data.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = headers.get("date")
    return parsedate_to_datetime(date) if date else datetime.now(UTC).replace(microsecond=0)


def _told(access: StreamAccess) -> str:
    """Name the stream and where it was asked for."""
    return f"{access.told} at {access.told_place}"


# How long a request is repeated before the epoch is.
GIVE_UP_AFTER = timedelta(seconds=20)
_DELAY_FIRST = timedelta(milliseconds=100)
_DELAY_MAX = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on asking; ``stop`` ends every wait."""

    clock: Clock
    give_up_after: timedelta
    stop: threading.Event = field(default_factory=threading.Event)
    chance: Callable[[], float] = random.random

    def ask(self, client: StreamClient, operation: str, **arguments: object) -> Answer:
        """Send a request until it is answered, refused for good, or time is up."""
        begun = self.clock.monotonic()
        renewed = False
        tries = 0
        while True:
            try:
                return client.ask(operation, **arguments)
            except StreamError as error:
                if error.kind is Kind.EXPIRED_TOKEN and not renewed:
                    renewed = True
                    client.forget_credentials()
                    continue
                left = self.give_up_after.total_seconds() - (self.clock.monotonic() - begun)
                if not error.heals or left <= 0:
                    raise
                delay = min(self.delay(tries), timedelta(seconds=left))
            tries += 1
            self._pause(delay)

    def wait(self, tries: int) -> None:
        """Wait before something is asked again that was answered in vain so many times."""
        self._pause(self.delay(tries))

    def _pause(self, delay: timedelta) -> None:
        if self.clock.wait(self.stop, delay):
            raise StoppedError("asked to stop while waiting for the stream")

    def delay(self, tries: int) -> timedelta:
        """Answer how long to wait behind so many tries in vain: any time up to a limit."""
        longest: timedelta = min(_DELAY_MAX, _DELAY_FIRST * 2 ** min(tries, 10))
        return longest * self.chance()
