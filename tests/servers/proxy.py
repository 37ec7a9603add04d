"""A proxy in front of an HTTP server that records requests and injects faults.

The proxy forwards every byte unchanged, including the Host header, so that signatures stay
valid. The proxy runs in threads of the test process. Some code holds Python's global lock
while it waits for a response, such as deltalake's queries. Such code must not use the proxy.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import assert_never
from urllib.parse import parse_qsl, urlsplit

from tests.servers.buckets import Bucket
from tests.servers.child import HOST, free_ports
from tests.servers.forwarding import Exchange, Listener

_HOLD_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as received; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def parameters(self) -> dict[str, str]:
        """The parsed query."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    @property
    def listing(self) -> bool:
        """Whether the request lists one page of a bucket's keys."""
        return self.method == "GET" and self.parameters.get("list-type") == "2"


When = Callable[[Request], bool]


@dataclass(frozen=True, kw_only=True)
class Respond:
    """Send this response; the server never receives the request."""

    status: int
    body: bytes = b""
    content_type: str = "application/xml"


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Delay the request, then forward it, even if the client no longer waits."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class TruncateBody:
    """Forward the response's headers and some bytes of its body, then close the connection."""

    after_bytes: int


@dataclass(frozen=True, kw_only=True)
class LoseResponse:
    """Let the server handle the request, then close the connection without a response."""


class HoldTogether:
    """Hold requests until a number of them arrive in parallel, then forward them."""

    def __init__(self, requests: int) -> None:
        self._barrier = threading.Barrier(
            requests, action=self._fault_for, timeout=_HOLD_SECONDS
        )
        self.met = False

    def _fault_for(self) -> None:
        self.met = True

    def wait(self) -> None:
        """Wait for the other requests; after a timeout continue without them."""
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait()


Fault = Respond | Delay | TruncateBody | LoseResponse | HoldTogether


def slow_down() -> Respond:
    """Return the response of S3 to too many requests."""
    return refusal(
        HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."
    )


def refusal(status: int, code: str, message: str) -> Respond:
    """Return an error response of S3."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Respond(status=status, body=f'<?xml version="1.0"?>\n{text}'.encode())


def anything(_request: Request) -> bool:
    """Match every request."""
    return True


def listing(request: Request) -> bool:
    """Match a listing of a bucket's keys."""
    return request.listing


def method(name: str, *, path: str = "") -> When:
    """Match requests by their method and a part of their path, except listings."""
    return lambda r: r.method == name and path in r.path and not r.listing


@dataclass
class _Injected:
    fault: Fault
    when: When
    times: int


@dataclass
class FaultProxy:
    """A proxy on a free port; a fault affects the next ``times`` matching requests."""

    upstream: str
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _requests: list[Request] = field(default_factory=list, init=False)
    _faults: list[_Injected] = field(default_factory=list, init=False)
    _listener: Listener | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        (self._port,) = free_ports(1)

    @property
    def endpoint(self) -> str:
        """Address for clients, instead of the server's address."""
        return f"http://{HOST}:{self._port}"

    def up(self) -> None:
        """Accept connections; do nothing if the proxy is up."""
        with self._lock:
            if self._listener is None:
                self._listener = Listener(self._port, serve=self._serve)

    def down(self) -> None:
        """Break every connection and refuse new ones until ``up``."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()

    def inject(self, fault: Fault, *, when: When = anything, times: int = 1) -> None:
        """Inject a fault into the next matching requests; earlier faults take precedence."""
        with self._lock:
            self._faults.append(_Injected(fault, when, times))

    def clear_faults(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    @property
    def requests(self) -> list[Request]:
        """All requests since the last ``clear``, including those with a fault."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Clear the recorded requests."""
        with self._lock:
            self._requests.clear()

    def count(self, when: When = anything) -> int:
        """Count the matching requests."""
        return sum(1 for request in self.requests if when(request))

    def listings(self) -> int:
        """Count the listing requests."""
        return self.count(listing)

    def gets(self, path: str = "") -> int:
        """Count the reads of objects, without listings."""
        return self.count(method("GET", path=path))

    def heads(self, path: str = "") -> int:
        """Count the HEAD requests."""
        return self.count(method("HEAD", path=path))

    def puts(self, path: str = "") -> int:
        """Count the PUT requests."""
        return self.count(method("PUT", path=path))

    def _serve(self, exchange: Exchange) -> None:
        fault = self._fault_for(_request(exchange))
        match fault:
            case None:
                exchange.forward(self.upstream)
            case Delay():
                exchange.pause(fault.seconds)
                exchange.forward(self.upstream)
            case Respond():
                exchange.respond(fault.status, fault.body, content_type=fault.content_type)
            case TruncateBody():
                exchange.forward(self.upstream, bytes_max=fault.after_bytes)
            case HoldTogether():
                fault.wait()
                exchange.forward(self.upstream)
            case LoseResponse():
                exchange.forward(self.upstream, lost=True)
            case _:
                assert_never(fault)

    def _fault_for(self, request: Request) -> Fault | None:
        """Record a request; return the fault for it, if any."""
        with self._lock:
            self._requests.append(request)
            for injected in self._faults:
                if injected.times > 0 and injected.when(request):
                    injected.times -= 1
                    return injected.fault
        return None


@dataclass(frozen=True, kw_only=True)
class Proxied:
    """A bucket with a proxy, and the same bucket without the proxy."""

    proxy: FaultProxy
    bucket: Bucket
    direct: Bucket


def _request(exchange: Exchange) -> Request:
    target = urlsplit(exchange.target)
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    return Request(
        method=exchange.command, path=target.path, query=target.query, headers=headers
    )
