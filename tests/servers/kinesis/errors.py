"""Error responses of Kinesis."""

from http import HTTPStatus


class ServiceError(Exception):
    """Error response with its code, HTTP status and message."""

    def __init__(
        self, code: str, message: str, *, status: int = HTTPStatus.BAD_REQUEST
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)


def invalid_argument(message: str) -> ServiceError:
    """Return the error for an invalid argument."""
    return ServiceError("InvalidArgumentException", message)


def not_found(message: str) -> ServiceError:
    """Return the error for a missing stream or shard."""
    return ServiceError("ResourceNotFoundException", message)


def in_use(message: str) -> ServiceError:
    """Return the error for a stream that is not in the required state."""
    return ServiceError("ResourceInUseException", message)


def throughput_exceeded(message: str) -> ServiceError:
    """Return the error for too many reads of a shard."""
    return ServiceError("ProvisionedThroughputExceededException", message)


def limit_exceeded(message: str) -> ServiceError:
    """Return the error for too many calls of an account."""
    return ServiceError("LimitExceededException", message)
