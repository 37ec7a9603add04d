"""Injected responses, and credentials that expire."""

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.servers.kinesis.errors import ServiceError

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedResponse:
    """An injected response: its status, its body, and its error code if it is an error."""

    status: int
    body: str
    code: str = ""


@dataclass(slots=True)
class _CredentialLimit:
    calls_left: int
    code: str


@dataclass(slots=True)
class Faults:
    """Injected responses and credential limits that are still to come."""

    _queue_by_operation: dict[str, deque[InjectedResponse]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    _limit_by_credential: dict[str, _CredentialLimit] = field(default_factory=dict)

    def inject(self, operation: str, response: InjectedResponse, *, times: int) -> None:
        """Return a response to the next calls of an operation, without executing them."""
        self._queue_by_operation[operation].extend([response] * times)

    def refuse(self, credential: str, *, after_calls: int, code: str) -> None:
        """Refuse an access key or a session token after ``after_calls`` calls."""
        self._limit_by_credential[credential] = _CredentialLimit(after_calls, code)

    def next_for(self, operation: str) -> InjectedResponse | None:
        """Return the injected response for the current call; None if there is none."""
        for name in (operation, ANY):
            if self._queue_by_operation[name]:
                return self._queue_by_operation[name].popleft()
        return None

    def require_valid(self, *credentials: str) -> None:
        """Raise ServiceError if a key or token has no calls left."""
        for credential in credentials:
            limit = self._limit_by_credential.get(credential)
            if limit is None:
                continue
            if limit.calls_left <= 0:
                raise ServiceError(
                    limit.code, "The security token included in the request is expired"
                )
            limit.calls_left -= 1


def error_response(code: str, message: str, *, status: int) -> InjectedResponse:
    """Return an error response in the format of Kinesis."""
    body = json.dumps({"__type": code, "message": message})
    return InjectedResponse(status=status, body=body, code=code)


def malformed_response(body: str) -> InjectedResponse:
    """Return a response with status 200 and any body."""
    return InjectedResponse(status=HTTPStatus.OK, body=body)
