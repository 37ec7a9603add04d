"""State of the server: streams, switches, faults, and the clock."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.clock import Clock
from tests.servers.kinesis.errors import in_use, invalid_argument, not_found
from tests.servers.kinesis.faults import Faults
from tests.servers.kinesis.limits import Limits
from tests.servers.kinesis.parameters import Parameters
from tests.servers.kinesis.request_log import RequestLog
from tests.servers.kinesis.stream import Stream
from tests.servers.kinesis.switches import Switches

ACCOUNT = "123456789012"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN = re.compile(
    r"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):\d{12}:stream/(?P<name>[a-zA-Z0-9_.-]+)"
)


@dataclass(slots=True, kw_only=True)
class State:
    """State of one server; callers must hold the lock of the service."""

    clock: Clock
    region: str
    switches: Switches = field(default_factory=Switches)
    faults: Faults = field(default_factory=Faults)
    limits: Limits = field(default_factory=Limits)
    log: RequestLog = field(default_factory=RequestLog)
    moved: timedelta = timedelta()
    # Tokens of earlier series have expired.
    iterator_series: int = 0
    page_series: int = 0
    _streams: dict[str, Stream] = field(default_factory=dict)
    _last_creation_second: int = 0

    def now_ms(self) -> int:
        """Return the server's time."""
        return (self.clock.now() + self.moved - _EPOCH) // timedelta(milliseconds=1)

    def streams(self) -> list[Stream]:
        """Return all streams, sorted by name."""
        self._advance_streams()
        return [self._streams[name] for name in sorted(self._streams)]

    def stream(self, parameters: Parameters) -> Stream:
        """Return the stream that a request names, by name or by ARN."""
        return self.stream_named(self._name_in(parameters))

    def stream_named(self, name: str) -> Stream:
        """Return a stream in its current state."""
        self._advance_streams()
        found = self._streams.get(name)
        if found is None:
            raise not_found(f"Stream {name} under account {ACCOUNT} not found.")
        if self.switches.retention_trims:
            found.trim(self.now_ms())
        return found

    def create_stream(self, name: str, shards: int) -> Stream:
        """Create a stream with new shards, even if a stream of that name existed before."""
        if not _NAME.fullmatch(name):
            raise invalid_argument(
                f"StreamName {name!r} must consist of letters, digits, '_', '.' and '-'."
            )
        self._advance_streams()
        if name in self._streams:
            raise in_use(f"Stream {name} under account {ACCOUNT} already exists.")
        now_ms = self.now_ms()
        stream = Stream(
            name=name,
            arn=f"arn:aws:kinesis:{self.region}:{ACCOUNT}:stream/{name}",
            created_ms=now_ms,
            ready_ms=now_ms + self.switches.create_ms,
            next_creation_second=self._next_creation_second,
        )
        stream.create_shards(shards)
        self._streams[name] = stream
        return stream

    def delete_streams(self) -> None:
        """Delete all streams at once."""
        self._streams.clear()

    def _name_in(self, parameters: Parameters) -> str:
        if not parameters.has("StreamARN"):
            return parameters.text("StreamName")
        arn = parameters.text("StreamARN")
        found = _ARN.fullmatch(arn)
        if found is None:
            raise invalid_argument(f"StreamARN {arn!r} is not the ARN of a stream.")
        if parameters.has("StreamName") and parameters.text("StreamName") != found["name"]:
            raise invalid_argument("StreamName and StreamARN name different streams.")
        if found["region"] != self.region:
            raise not_found(f"Stream {arn} not found in {self.region}.")
        return found["name"]

    def _advance_streams(self) -> None:
        now_ms = self.now_ms()
        for name, stream in list(self._streams.items()):
            stream.advance_to(now_ms)
            if stream.deleted(now_ms):
                del self._streams[name]

    def _next_creation_second(self) -> int:
        # No two shards of one name have the same creation second, so that their sequence
        # numbers differ.
        self._last_creation_second = max(self.now_ms() // 1000, self._last_creation_second + 1)
        return self._last_creation_second
