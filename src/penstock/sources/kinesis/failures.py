"""What the service or the network refused, and who must act.

The text of an answer is not repeated, but for its code: it may hold what a person sent.
"""

import re
from enum import StrEnum

from penstock.errors import Code, ExternalError

_ACTIONS = {
    "describe_stream_summary": "kinesis:DescribeStreamSummary",
    "get_records": "kinesis:GetRecords",
    "get_shard_iterator": "kinesis:GetShardIterator",
    "list_shards": "kinesis:ListShards",
}
_THROTTLED = frozenset(
    {
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_REFUSED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_SKEWED = re.compile(r"Signature (?:expired|not yet current): (\S+) is (?:now )?\w+ than (\S+)")
_SERVER_FAULT = 500
# What is asked of a stream as a whole.
_OF_STREAMS = ("describe_stream_summary", "list_shards")


class Kind(StrEnum):
    """What can be done about a refusal."""

    THROTTLED = "throttled"
    FAULT = "fault"
    EXPIRED_ITERATOR = "expired iterator"
    EXPIRED_NEXT_TOKEN = "expired next token"  # noqa: S105 - A kind and no password.
    EXPIRED_TOKEN = "expired token"  # noqa: S105 - A kind and no password.
    NOT_FOUND = "not found"
    BAD_ARGUMENT = "bad argument"
    REFUSED = "refused"
    OTHER = "other"


_KIND_BY_CODE = {
    **dict.fromkeys(_THROTTLED, Kind.THROTTLED),
    **dict.fromkeys(_REFUSED, Kind.REFUSED),
    "ExpiredIteratorException": Kind.EXPIRED_ITERATOR,
    "ExpiredNextTokenException": Kind.EXPIRED_NEXT_TOKEN,
    "ExpiredToken": Kind.EXPIRED_TOKEN,
    "ExpiredTokenException": Kind.EXPIRED_TOKEN,
    "InvalidArgumentException": Kind.BAD_ARGUMENT,
    "ResourceNotFoundException": Kind.NOT_FOUND,
    "ValidationException": Kind.BAD_ARGUMENT,
}


class StreamError(ExternalError):
    """A request that was refused or got no answer."""

    code_default = Code.GET_REMOTE_DATA_ERROR
    kind: Kind = Kind.OTHER

    @property
    def heals(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.kind in (Kind.THROTTLED, Kind.FAULT)


def failure_of(error: Exception, *, operation: str, access: str) -> StreamError:
    """Turn an error of boto3 into one of ours."""
    answer = getattr(error, "response", None)
    if answer is None:
        # The network, a proxy, or credentials that were not found.
        failure = StreamError(
            f"{access} did not answer",
            detail=f"{type(error).__name__}.",
            hint="Check aws.region, aws.endpoint, the network and the credentials.",
        )
        failure.kind = Kind.FAULT
        return failure
    code = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = str(answer.get("Error", {}).get("Message", ""))
    gone = _KIND_BY_CODE.get(code) is Kind.NOT_FOUND and operation in _OF_STREAMS
    told = "does not exist" if gone else f"refused {_ACTIONS.get(operation, operation)}"
    failure = StreamError(
        f"{access} {told}",
        detail=_detail(code, text, status=status),
        hint=_hint(code, text, operation=operation),
    )
    failure.kind = kind_of(code, status=status)
    return failure


def kind_of(code: str, *, status: int) -> Kind:
    """Tell what an error code of the service means."""
    if code in _KIND_BY_CODE:
        return _KIND_BY_CODE[code]
    return Kind.FAULT if status >= _SERVER_FAULT else Kind.OTHER


def _detail(code: str, text: str, *, status: int) -> str:
    skew = _SKEWED.search(text)
    if skew is not None:
        return f"This clock is wrong: it signed at {skew[1]}, the service allows {skew[2]}."
    return f"{code or 'An answer without a code'} (HTTP {status})."


def _hint(code: str, text: str, *, operation: str) -> str:
    if _SKEWED.search(text):
        return "Set the clock of this machine; penstock doctor compares it."
    if code in _REFUSED:
        return (
            f"Allow {_ACTIONS.get(operation, operation)} for the keys or the role of the job; "
            "a secret is changed with ALTER SECRET."
        )
    if code.startswith("KMS"):
        return "Look at the KMS key of the stream; the job resumes by itself once it works."
    return ""
