"""Log of requests, for tests that count them."""

from collections import deque
from dataclasses import dataclass, field

_ENTRIES_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request and its response; ``code`` is empty unless the response is an error."""

    operation: str
    stream: str
    shard: str
    access_key_id: str
    session_token: str
    at_ms: int
    status: int
    code: str
    records: int
    size_bytes: int


@dataclass(slots=True)
class RequestLog:
    """The latest requests, in the order of their responses."""

    _entries: deque[LoggedRequest] = field(default_factory=lambda: deque(maxlen=_ENTRIES_MAX))

    def add(self, entry: LoggedRequest) -> None:
        """Add a request."""
        self._entries.append(entry)

    def entries(self, operation: str = "") -> list[LoggedRequest]:
        """Return all requests, or those of one operation."""
        return [e for e in self._entries if not operation or e.operation == operation]

    def clear(self) -> None:
        """Delete all requests."""
        self._entries.clear()
