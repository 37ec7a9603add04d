"""Open clients of AWS services, and share clients of any service between threads.

Only this module and ``credentials`` import boto3.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from penstock.aws.credentials import AwsKeys, credentials_for
from penstock.clock import Clock

# At least the number of threads that use one client at the same time.
CONNECTIONS_MAX = 64


def aws_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a client raises."""
    from botocore.exceptions import BotoCoreError, ClientError

    return (BotoCoreError, ClientError)


def open_client(
    service: str,
    *,
    keys: AwsKeys,
    region: str,
    endpoint: str,
    connect_timeout: timedelta,
    read_timeout: timedelta,
) -> Any:  # noqa: ANN401 - boto3 has no types.
    """Create a client that never retries and refreshes its credentials before they expire."""
    import boto3
    from botocore.config import Config
    from botocore.credentials import DeferredRefreshableCredentials
    from botocore.session import get_session

    session = get_session()
    cached = credentials_for(keys)

    def refresh() -> dict[str, str | None]:
        credentials = cached()
        expires_at = credentials["expires_at"] or datetime.now(UTC) + timedelta(days=1)
        return {
            "access_key": credentials["access_key_id"],
            "secret_key": credentials["secret_access_key"],
            "token": credentials["token"],
            "expiry_time": expires_at.isoformat(),
        }

    session._credentials = DeferredRefreshableCredentials(refresh, "penstock")  # noqa: SLF001 - There is no public API.
    session.register(f"creating-serializer.{service}", _keep_milliseconds)
    # Parsing dates would double the time of reading a response.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=float)
    return boto3.Session(botocore_session=session).client(
        service,
        region_name=region,
        endpoint_url=endpoint or None,
        config=Config(
            connect_timeout=connect_timeout.total_seconds(),
            read_timeout=read_timeout.total_seconds(),
            max_pool_connections=CONNECTIONS_MAX,
            # The caller retries, and counts requests.
            retries={"total_max_attempts": 1, "mode": "standard"},
        ),
    )


def _keep_milliseconds(serializer_kwargs: dict[str, Any], **_: object) -> None:
    """Keep the milliseconds of timestamps, which boto3 truncates."""
    serializer_kwargs["timestamp_precision"] = "millisecond"


# Longer than the interval between two polls of a job, so that polls reuse a client. Idle
# clients are closed, because a client of boto3 takes 8 MB.
IDLE_MAX = timedelta(minutes=10)


class _Closeable(Protocol):
    def close(self) -> None: ...


Client = TypeVar("Client", bound=_Closeable)
Configuration = TypeVar("Configuration", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Entry(Generic[Client]):
    opening: threading.Lock = field(default_factory=threading.Lock)
    client: Client | None = None
    users: int = 0
    used_at: float = 0.0


class SharedClients(Generic[Configuration, Client]):
    """Clients that the threads of a process share, one per configuration; closed when idle.

    Opening a client blocks only the threads that need the same client.
    """

    def __init__(self, open_one: Callable[[Configuration], Client], *, clock: Clock) -> None:
        self._open_one = open_one
        self._clock = clock
        self.abandon()

    def abandon(self) -> None:
        """Remove all clients without closing them; a forked process must not use them."""
        # Nothing waits for the network while this lock is held.
        self._lock = threading.Lock()
        self._entries: dict[Configuration, _Entry[Client]] = {}

    @contextmanager
    def borrow(self, configuration: Configuration) -> Iterator[Client]:
        """Open or reuse the client of a configuration; it stays open inside the block."""
        with self._lock:
            entry = self._entries.setdefault(configuration, _Entry())
            entry.users += 1
        try:
            with entry.opening:
                if entry.client is None:
                    entry.client = self._open_one(configuration)
            yield entry.client
        finally:
            with self._lock:
                entry.users -= 1
                entry.used_at = self._clock.monotonic()
                idle_since = entry.used_at - IDLE_MAX.total_seconds()
                unused = [
                    self._entries.pop(other)
                    for other, one in list(self._entries.items())
                    if not one.users and one.used_at < idle_since
                ]
                if not entry.users and self._entries.get(configuration) is not entry:
                    unused.append(entry)
            _close(unused)

    def discard(self, *configurations: Configuration) -> None:
        """Remove clients; the next use opens new ones, and the last user closes old ones."""
        with self._lock:
            found = [self._entries.pop(one, None) for one in configurations]
            unused = [entry for entry in found if entry is not None and not entry.users]
        _close(unused)

    def close(self) -> None:
        """Remove and close all clients."""
        self.discard(*list(self._entries))


def _close(entries: list[_Entry[Client]]) -> None:
    for entry in entries:
        if entry.client is not None:
            entry.client.close()
