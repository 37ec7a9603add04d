"""Client of the control commands, for tests."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from tests.servers.kinesis.control import CONTROL_PATH, ControlError
from tests.servers.kinesis.limits import CONTROL_CALLS_PER_SECOND
from tests.servers.kinesis.request_log import LoggedRequest

_TIMEOUT_SECONDS = 120


class KinesisControl:
    """Control of a running server; keeps no connection open."""

    def __init__(self, endpoint: str) -> None:
        self._address = urlsplit(endpoint).netloc

    def switch(self, **switches: object) -> None:
        """Set switches by name; see ``Switches``."""
        self._send("switch", switches=switches)

    def limit_as_aws(self) -> None:
        """Enable all limits of AWS: reads, iterators and control calls."""
        self.switch(
            limit_reads=True,
            limit_iterators=True,
            control_calls_per_second=CONTROL_CALLS_PER_SECOND,
        )

    def inject(
        self, operation: str, code: str, *, message: str = "", status: int = 400, times: int = 1
    ) -> None:
        """Return an error to the next calls of an operation, or of any operation ("*")."""
        self._send(
            "inject",
            operation=operation,
            code=code,
            message=message,
            status=status,
            times=times,
        )

    def inject_body(self, operation: str, body: str = "{}", *, times: int = 1) -> None:
        """Return a body with status 200 to the next calls of an operation."""
        self._send("inject", operation=operation, body=body, times=times)

    def refuse(
        self, credential: str, *, after_calls: int = 0, code: str = "ExpiredTokenException"
    ) -> None:
        """Refuse an access key id or a session token after ``after_calls`` more calls."""
        self._send("refuse", credential=credential, after_calls=after_calls, code=code)

    def heal(self) -> None:
        """Reset switches, injected responses, refused keys and limits."""
        self._send("heal")

    def reset(self) -> None:
        """Heal, delete all streams and logged requests, and reset the clock."""
        self._send("reset")

    def expire_iterators(self) -> None:
        """Expire all existing iterators."""
        self._send("expire_iterators")

    def expire_tokens(self) -> None:
        """Expire all existing page tokens."""
        self._send("expire_tokens")

    def move_clock(self, by: timedelta) -> None:
        """Move the server's clock forward."""
        self._send("move_clock", seconds=by.total_seconds())

    def now(self) -> datetime:
        """Return the server's time."""
        now_ms = self._send("now")
        if not isinstance(now_ms, int):
            raise ControlError(f"the server's time is {now_ms!r}")
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms)

    def trim(self, stream: str, shard: str, *, count: int | None = None) -> None:
        """Delete the oldest records of a shard, or all records."""
        self._send("trim", stream=stream, shard=shard, count=count)

    def preload(self, stream: str, *, count: int, size_bytes: int) -> None:
        """Add JSON records of one size quickly, in turn to every open shard."""
        self._send("preload", stream=stream, count=count, size_bytes=size_bytes)

    def requests(self, operation: str = "") -> list[LoggedRequest]:
        """Return the logged requests, all or those of one operation."""
        logged = self._send("requests", operation=operation)
        if not isinstance(logged, list):
            raise ControlError(f"the server's requests are {logged!r}")
        return [LoggedRequest(**entry) for entry in logged]

    def clear_requests(self) -> None:
        """Delete the logged requests."""
        self._send("clear_requests")

    def _send(self, name: str, **arguments: object) -> object:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_SECONDS)
        try:
            body = json.dumps({"do": name, **arguments})
            connection.request("POST", CONTROL_PATH, body=body)
            response = connection.getresponse()
            result: object = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ControlError(f"command {name!r} was refused: {result}")
        return result
