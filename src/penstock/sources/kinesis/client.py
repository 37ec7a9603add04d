"""Ask a stream, one request at a time; each is counted, and none is repeated in secret.

Invariant: one boto3 client for each process and configuration. Making one is slow and not safe
for threads; using one is.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from penstock.clock import SystemClock
from penstock.model.kinesis import CONNECTION_TIMEOUT_MS, REQUEST_TIMEOUT_MS
from penstock.sources.kinesis.clients import Clients, ClientsByProcess
from penstock.sources.kinesis.failures import failure_of
from penstock.storage.aws_credentials import AwsKeys, lender_of
from penstock.storage.aws_failures import asking_aws

# At least as many as threads that read or ask at once.
CONNECTIONS_MAX = 64
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
        from botocore.exceptions import BotoCoreError, ClientError

        with self._lock:
            self._count += 1
        try:
            with CLIENTS.of_this_process().lent(self.access) as client:
                data = getattr(client, operation)(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise failure_of(error, operation=operation, access=_told(self.access)) from None
        return Answer(data=data, at=_server_time(data))

    def forget_credentials(self) -> None:
        """Ask for new credentials: the service took these for old."""
        lender_of(self.access.keys).forget()
        CLIENTS.of_this_process().forget(self.access)


def _opened(access: StreamAccess) -> Any:  # noqa: ANN401 - boto3 has no types.
    with asking_aws(f"{_told(access)} could not be asked", hint=_HINT_SETTINGS):
        return _made(access)


def _made(access: StreamAccess) -> Any:  # noqa: ANN401 - boto3 has no types.
    import boto3
    from botocore.config import Config
    from botocore.credentials import DeferredRefreshableCredentials
    from botocore.session import get_session

    session = get_session()
    lend = lender_of(access.keys)

    def lent() -> dict[str, str | None]:
        credentials = lend()
        ends_at = credentials["expires_at"] or datetime.now(UTC) + timedelta(days=1)
        return {
            "access_key": credentials["access_key_id"],
            "secret_key": credentials["secret_access_key"],
            "token": credentials["token"],
            "expiry_time": ends_at.isoformat(),
        }

    session._credentials = DeferredRefreshableCredentials(lent, "lent")  # noqa: SLF001 - There is no public way.
    session.register("creating-serializer.kinesis", _with_milliseconds)
    # Making dates takes as long as all the rest of reading an answer.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=float)
    return boto3.Session(botocore_session=session).client(
        "kinesis",
        region_name=access.region,
        endpoint_url=access.endpoint or None,
        config=Config(
            connect_timeout=access.connect_timeout.total_seconds(),
            read_timeout=access.request_timeout.total_seconds(),
            max_pool_connections=CONNECTIONS_MAX,
            # Whoever asks decides what is repeated, and counts it.
            retries={"total_max_attempts": 1, "mode": "standard"},
        ),
    )


# The one thing that is shared by all loads of a process: a client each would take 8 MB.
CLIENTS: ClientsByProcess[StreamAccess, Any] = ClientsByProcess(
    lambda: Clients(_opened, clock=SystemClock())
)


def _with_milliseconds(serializer_kwargs: dict[str, Any], **_: object) -> None:
    """Let timestamps keep their milliseconds, which boto3 cuts off."""
    serializer_kwargs["timestamp_precision"] = "millisecond"


def _server_time(data: Mapping[str, Any]) -> datetime:
    """Answer the service's clock, which counts whole seconds."""
    headers = data.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = headers.get("date")
    return parsedate_to_datetime(date) if date else datetime.now(UTC).replace(microsecond=0)


def _told(access: StreamAccess) -> str:
    """Name the stream and where it was asked for."""
    return f"{access.told} at {access.told_place}"
