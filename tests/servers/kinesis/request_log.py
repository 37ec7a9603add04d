"""What was asked of the server, for tests that count."""

from collections import deque
from dataclasses import dataclass, field

_ENTRIES_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request and its answer; ``code`` is empty where the answer was no error."""

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
    """The latest requests, in the order in which they were answered."""

    _entries: deque[LoggedRequest] = field(default_factory=lambda: deque(maxlen=_ENTRIES_MAX))

    def add(self, entry: LoggedRequest) -> None:
        """Remember a request."""
        self._entries.append(entry)

    def entries(self, operation: str = "") -> list[LoggedRequest]:
        """Answer all requests, or those of one operation."""
        return [e for e in self._entries if not operation or e.operation == operation]

    def clear(self) -> None:
        """Forget all requests."""
        self._entries.clear()
