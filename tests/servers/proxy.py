"""A proxy in front of an HTTP server that remembers requests and makes things go wrong.

It passes every byte on as it came, the Host header too, so that signatures stay valid.
Its threads are those of the test: what keeps Python's lock while it waits for an answer, as
queries of deltalake do, must go past it.
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

_LONELY_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it came; the names of its headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def parameters(self) -> dict[str, str]:
        """The query, taken apart."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    @property
    def listing(self) -> bool:
        """Whether it asks for one page of a bucket's keys."""
        return self.method == "GET" and self.parameters.get("list-type") == "2"


When = Callable[[Request], bool]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer this; the server never sees the request."""

    status: int
    body: bytes = b""
    content_type: str = "application/xml"


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Keep the request this long, then pass it on, whether or not the client still waits."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class CutBody:
    """Pass on the answer's head and so many bytes of its body, then close the connection."""

    after_bytes: int


@dataclass(frozen=True, kw_only=True)
class LoseAnswer:
    """Let the server do the work, then close the connection without a word."""


class Together:
    """Keep requests until so many are there at once, then pass them on."""

    def __init__(self, requests: int) -> None:
        self._barrier = threading.Barrier(requests, action=self._meet, timeout=_LONELY_SECONDS)
        self.met = False

    def _meet(self) -> None:
        self.met = True

    def wait(self) -> None:
        """Wait for the others; one that stays alone goes on after a while, as do all others."""
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait()


Fault = Answer | Delay | CutBody | LoseAnswer | Together


def slow_down() -> Answer:
    """Answer as S3 does when it is asked too much."""
    return refusal(
        HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."
    )


def refusal(status: int, code: str, message: str) -> Answer:
    """Answer with an error of S3."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status=status, body=f'<?xml version="1.0"?>\n{text}'.encode())


def anything(_request: Request) -> bool:
    """Match every request."""
    return True


def listing(request: Request) -> bool:
    """Match a page of a bucket's keys."""
    return request.listing


def method(name: str, *, path: str = "") -> When:
    """Match requests by their method and a part of their path, listings never."""
    return lambda r: r.method == name and path in r.path and not r.listing


@dataclass
class _Injected:
    fault: Fault
    when: When
    times: int


@dataclass
class FaultProxy:
    """A proxy on a free port; ``times`` requests that match a fault meet it, in order."""

    upstream: str
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _requests: list[Request] = field(default_factory=list, init=False)
    _faults: list[_Injected] = field(default_factory=list, init=False)
    _listener: Listener | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        (self._port,) = free_ports(1)

    @property
    def endpoint(self) -> str:
        """Where clients go instead of to the server."""
        return f"http://{HOST}:{self._port}"

    def up(self) -> None:
        """Accept connections; nothing happens if it does."""
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
        """Let the next requests that match meet a fault; one that came before goes first."""
        with self._lock:
            self._faults.append(_Injected(fault, when, times))

    def heal(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    @property
    def requests(self) -> list[Request]:
        """All requests since the last ``clear``, with those that met a fault."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forget the requests."""
        with self._lock:
            self._requests.clear()

    def count(self, when: When = anything) -> int:
        """Count the requests that match."""
        return sum(1 for request in self.requests if when(request))

    def listings(self) -> int:
        """Count the pages of keys that were asked for."""
        return self.count(listing)

    def gets(self, path: str = "") -> int:
        """Count the reads of objects; listings are none."""
        return self.count(method("GET", path=path))

    def heads(self, path: str = "") -> int:
        """Count the HEAD requests."""
        return self.count(method("HEAD", path=path))

    def puts(self, path: str = "") -> int:
        """Count the PUT requests."""
        return self.count(method("PUT", path=path))

    def _serve(self, exchange: Exchange) -> None:
        fault = self._meet(_request(exchange))
        match fault:
            case None:
                exchange.forward(self.upstream)
            case Delay():
                exchange.pause(fault.seconds)
                exchange.forward(self.upstream)
            case Answer():
                exchange.answer(fault.status, fault.body, content_type=fault.content_type)
            case CutBody():
                exchange.forward(self.upstream, bytes_max=fault.after_bytes)
            case Together():
                fault.wait()
                exchange.forward(self.upstream)
            case LoseAnswer():
                exchange.forward(self.upstream, lost=True)
            case _:
                assert_never(fault)

    def _meet(self, request: Request) -> Fault | None:
        """Remember a request; answer the fault that it meets."""
        with self._lock:
            self._requests.append(request)
            for injected in self._faults:
                if injected.times > 0 and injected.when(request):
                    injected.times -= 1
                    return injected.fault
        return None


@dataclass(frozen=True, kw_only=True)
class Proxied:
    """A bucket behind a proxy, and the same bucket without it."""

    proxy: FaultProxy
    bucket: Bucket
    direct: Bucket


def _request(exchange: Exchange) -> Request:
    target = urlsplit(exchange.target)
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    return Request(
        method=exchange.command, path=target.path, query=target.query, headers=headers
    )
