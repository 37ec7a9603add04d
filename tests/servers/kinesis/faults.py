"""Answers that tests order, and keys that stop being good."""

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.servers.kinesis.refusal import RefusalError

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """An answer as ordered: its status, its error code (if it is one), its body."""

    status: int
    body: str
    code: str = ""


@dataclass(slots=True)
class _Grant:
    calls_left: int
    code: str


@dataclass(slots=True)
class Faults:
    """What waits to go wrong."""

    _waiting: dict[str, deque[Injected]] = field(default_factory=lambda: defaultdict(deque))
    _grants: dict[str, _Grant] = field(default_factory=dict)

    def inject(self, operation: str, answer: Injected, *, times: int) -> None:
        """Let the next calls of an operation, or of any, get an answer without being done."""
        self._waiting[operation].extend([answer] * times)

    def refuse(self, credential: str, *, after_calls: int, code: str) -> None:
        """Refuse an access key or a session token after so many calls."""
        self._grants[credential] = _Grant(after_calls, code)

    def next_for(self, operation: str) -> Injected | None:
        """Answer what the call at hand is to get instead of its answer."""
        for name in (operation, ANY):
            if self._waiting[name]:
                return self._waiting[name].popleft()
        return None

    def require_granted(self, *credentials: str) -> None:
        """Refuse a call with a key or token whose calls are used up."""
        for credential in credentials:
            grant = self._grants.get(credential)
            if grant is None:
                continue
            if grant.calls_left <= 0:
                raise RefusalError(
                    grant.code, "The security token included in the request is expired"
                )
            grant.calls_left -= 1


def error_answer(code: str, message: str, *, status: int) -> Injected:
    """Answer an error as Kinesis writes it."""
    body = json.dumps({"__type": code, "message": message})
    return Injected(status=status, body=body, code=code)


def malformed_answer(body: str) -> Injected:
    """Answer what looks well and is not."""
    return Injected(status=HTTPStatus.OK, body=body)
