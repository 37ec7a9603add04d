"""The orders of ``control`` as methods, for tests."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from tests.servers.kinesis.control import CONTROL_PATH, ControlError
from tests.servers.kinesis.limits import CONTROL_CALLS_PER_SECOND
from tests.servers.kinesis.request_log import LoggedRequest

_PATIENCE_SECONDS = 120


class KinesisControl:
    """Changes the ways of a running server; it keeps no connection open."""

    def __init__(self, endpoint: str) -> None:
        self._address = urlsplit(endpoint).netloc

    def switch(self, **switches: object) -> None:
        """Set switches by name; ``Switches`` lists them."""
        self._order("switch", switches=switches)

    def limit_as_aws(self) -> None:
        """Switch all limits on: reads, iterators and control calls."""
        self.switch(
            limit_reads=True,
            limit_iterators=True,
            control_calls_per_second=CONTROL_CALLS_PER_SECOND,
        )

    def inject(
        self, operation: str, code: str, *, message: str = "", status: int = 400, times: int = 1
    ) -> None:
        """Let the next calls of an operation, or of any ("*"), get an error."""
        self._order(
            "inject",
            operation=operation,
            code=code,
            message=message,
            status=status,
            times=times,
        )

    def inject_body(self, operation: str, body: str = "{}", *, times: int = 1) -> None:
        """Let the next calls of an operation get a body with status 200."""
        self._order("inject", operation=operation, body=body, times=times)

    def refuse(
        self, credential: str, *, after_calls: int = 0, code: str = "ExpiredTokenException"
    ) -> None:
        """Refuse an access key id or a session token after so many more calls."""
        self._order("refuse", credential=credential, after_calls=after_calls, code=code)

    def heal(self) -> None:
        """Set all switches back, and forget injected answers, refused keys and limits."""
        self._order("heal")

    def reset(self) -> None:
        """Heal, forget all streams and requests, and set the clock back."""
        self._order("reset")

    def expire_iterators(self) -> None:
        """Let all iterators made so far expire."""
        self._order("expire_iterators")

    def expire_tokens(self) -> None:
        """Let all page tokens made so far expire."""
        self._order("expire_tokens")

    def move_clock(self, by: timedelta) -> None:
        """Move the server's clock forward."""
        self._order("move_clock", seconds=by.total_seconds())

    def now(self) -> datetime:
        """Answer the server's time."""
        answer = self._order("now")
        if not isinstance(answer, int):
            raise ControlError(f"the server's time is {answer!r}")
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=answer)

    def trim(self, stream: str, shard: str, *, count: int | None = None) -> None:
        """Forget the oldest records of a shard, or all of them."""
        self._order("trim", stream=stream, shard=shard, count=count)

    def preload(self, stream: str, *, count: int, size_bytes: int) -> None:
        """Make JSON records of one size quickly, in turn for every open shard."""
        self._order("preload", stream=stream, count=count, size_bytes=size_bytes)

    def requests(self, operation: str = "") -> list[LoggedRequest]:
        """Answer what was asked of the server, all of it or one operation."""
        answer = self._order("requests", operation=operation)
        if not isinstance(answer, list):
            raise ControlError(f"the server's requests are {answer!r}")
        return [LoggedRequest(**entry) for entry in answer]

    def forget_requests(self) -> None:
        """Begin to count anew."""
        self._order("forget_requests")

    def _order(self, name: str, **arguments: object) -> object:
        connection = http.client.HTTPConnection(self._address, timeout=_PATIENCE_SECONDS)
        try:
            body = json.dumps({"do": name, **arguments})
            connection.request("POST", CONTROL_PATH, body=body)
            response = connection.getresponse()
            answer: object = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ControlError(f"order {name!r} was refused: {answer}")
        return answer
