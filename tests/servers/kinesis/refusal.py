"""The errors that Kinesis answers with."""

from http import HTTPStatus


class RefusalError(Exception):
    """An answer of Kinesis that is an error: its code, its HTTP status and its message."""

    def __init__(
        self, code: str, message: str, *, status: int = HTTPStatus.BAD_REQUEST
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)


def invalid(message: str) -> RefusalError:
    """Say that an argument cannot be what it is."""
    return RefusalError("InvalidArgumentException", message)


def missing(message: str) -> RefusalError:
    """Say that a stream or a shard does not exist."""
    return RefusalError("ResourceNotFoundException", message)


def in_use(message: str) -> RefusalError:
    """Say that a stream is not in the state that the call needs."""
    return RefusalError("ResourceInUseException", message)


def throttled(message: str) -> RefusalError:
    """Say that a shard was asked too much."""
    return RefusalError("ProvisionedThroughputExceededException", message)


def too_many_calls(message: str) -> RefusalError:
    """Say that an account made too many calls."""
    return RefusalError("LimitExceededException", message)
