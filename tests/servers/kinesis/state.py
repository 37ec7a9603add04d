"""All that the server knows: streams, switches, waiting faults, and its own time."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.clock import Clock
from tests.servers.kinesis.faults import Faults
from tests.servers.kinesis.given import Given
from tests.servers.kinesis.limits import Limits
from tests.servers.kinesis.refusal import in_use, invalid, missing
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
    """The state of one server; whoever uses it holds the server's lock."""

    clock: Clock
    region: str
    switches: Switches = field(default_factory=Switches)
    faults: Faults = field(default_factory=Faults)
    limits: Limits = field(default_factory=Limits)
    log: RequestLog = field(default_factory=RequestLog)
    moved: timedelta = timedelta()
    # Tokens of an earlier series have expired.
    iterator_series: int = 0
    page_series: int = 0
    _streams: dict[str, Stream] = field(default_factory=dict)
    _last_birth: int = 0

    def now_ms(self) -> int:
        """Answer the server's own time."""
        return (self.clock.now() + self.moved - _EPOCH) // timedelta(milliseconds=1)

    def streams(self) -> list[Stream]:
        """Answer all streams by name."""
        self._pass_time()
        return [self._streams[name] for name in sorted(self._streams)]

    def stream(self, given: Given) -> Stream:
        """Find the stream that a request names, by name or by ARN."""
        return self.stream_named(self._name_in(given))

    def stream_named(self, name: str) -> Stream:
        """Find a stream as it is now."""
        self._pass_time()
        found = self._streams.get(name)
        if found is None:
            raise missing(f"Stream {name} under account {ACCOUNT} not found.")
        if self.switches.retention_trims:
            found.trim(self.now_ms())
        return found

    def create_stream(self, name: str, shards: int) -> Stream:
        """Begin a stream; its shards begin anew even if there was one of its name."""
        if not _NAME.fullmatch(name):
            raise invalid(f"StreamName {name!r} must be of letters, digits, '_', '.' and '-'.")
        self._pass_time()
        if name in self._streams:
            raise in_use(f"Stream {name} under account {ACCOUNT} already exists.")
        now_ms = self.now_ms()
        made = Stream(
            name=name,
            arn=f"arn:aws:kinesis:{self.region}:{ACCOUNT}:stream/{name}",
            created_ms=now_ms,
            ready_ms=now_ms + self.switches.create_ms,
            next_birth=self._next_birth,
        )
        made.begin(shards)
        self._streams[name] = made
        return made

    def forget_streams(self) -> None:
        """Remove all streams at once."""
        self._streams.clear()

    def _name_in(self, given: Given) -> str:
        if not given.has("StreamARN"):
            return given.text("StreamName")
        arn = given.text("StreamARN")
        found = _ARN.fullmatch(arn)
        if found is None:
            raise invalid(f"StreamARN {arn!r} is not the ARN of a stream.")
        if given.has("StreamName") and given.text("StreamName") != found["name"]:
            raise invalid("StreamName and StreamARN name different streams.")
        if found["region"] != self.region:
            raise missing(f"Stream {arn} not found in {self.region}.")
        return found["name"]

    def _pass_time(self) -> None:
        now_ms = self.now_ms()
        for name, stream in list(self._streams.items()):
            stream.pass_time(now_ms)
            if stream.deleted(now_ms):
                del self._streams[name]

    def _next_birth(self) -> int:
        # No two shards of one name are born in the same second, so that their sequence
        # numbers tell them apart.
        self._last_birth = max(self.now_ms() // 1000, self._last_birth + 1)
        return self._last_birth
