"""Say what a bucket answered, in our words and without anybody's secrets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PreconditionError

from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.store_options import StoreOptions
from penstock.storage.hiding import hidden_texts, without
from penstock.storage.objects import (
    FolderMissingError,
    ObjectChangedError,
    ObjectMissingError,
    told_by_server,
)

_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken"
    r"|40[13] (?:Forbidden|Unauthorized)"
)
_SKEWED = "RequestTimeTooSkewed"
_SIGNED_AT = re.compile(r"<RequestTime>([0-9TZ:.+-]{1,40})</RequestTime>")
_SERVER_TIME = re.compile(r"<ServerTime>([0-9TZ:.+-]{1,40})</ServerTime>")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_UNREACHABLE = re.compile(r"[Cc]onnection refused|error trying to connect|dns error|timed out")
# What the function said that the client asked for keys.
_LENDER = re.compile(r"credential provider: (\w+): ([^\n]{1,300})")
# Whoever expects the JSON of a service account repeats the text that stands in its place.
_FOUND_INSTEAD = re.compile(r'string ".*')
# What the client of Azure says, followed by a part of the key.
_NO_BASE64 = "Invalid Access Key"
# What the client of Google says of a text that is no key file, or has no private key in it.
_NO_ACCOUNT = re.compile(r"decode service account|reading pem file|KeyRejected|InvalidEncoding")
_ODD_KEY = re.compile(r"Path \"([^\"]*)\" contained|Error parsing Path")

_HINT_KEYS = (
    'Check "s3.access_key", "s3.secret_key", the rights of that user, and "s3.region"; '
    "a secret is changed with ALTER SECRET."
)
_HINT_ACCOUNT = (
    'Check "gs.service_account", which is the JSON that Google gives for a key, and the rights '
    "of that account; a secret is changed with ALTER SECRET."
)
_HINT_LENT = (
    'Check who lends the keys: "s3.role_arn", or the environment, the profile, the container '
    "or the instance of this process."
)
_HINT_REACH = 'Check "s3.endpoint" and the network; penstock doctor tries the warehouse.'


@contextmanager
def asking(fact: str, options: StoreOptions) -> Iterator[None]:
    """Turn what the library raises inside the block into an error of ours.

    Its own error is left behind: it holds the server's whole answer, which may repeat keys.
    """
    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise _wrapped(fact, str(error), options) from None
        raise ObjectMissingError(f"{fact}: it does not exist") from None
    except PreconditionError:
        raise ObjectChangedError(
            f"{fact}: it was changed after it was listed",
            hint="Write objects under new keys instead of replacing them.",
        ) from None
    except (BaseError, OSError) as error:
        raise _wrapped(fact, str(error), options) from None


def _wrapped(fact: str, text: str, options: StoreOptions) -> PenstockError:
    said = _said(text, options)
    if _NO_BUCKET.search(text):
        return FolderMissingError(
            f"{fact}: the bucket does not exist", hint="Create it, or correct the uri."
        )
    if lender := _LENDER.search(text):
        kind = UserError if lender[1] == UserError.__name__ else ExternalError
        told = without(lender[2].rstrip("."), hidden_texts(options))
        return kind(f"{fact}: {told}", hint=_HINT_LENT)
    if _SKEWED in text:
        return ExternalError(
            f"{fact}: the clocks of this machine and of the store differ too much",
            detail=_both_times(text) or said,
            hint="Set the clock of this machine; penstock doctor looks at it.",
        )
    if _REFUSED.search(text):
        hint = _HINT_ACCOUNT if options.service_account else _HINT_KEYS
        return ExternalError(f"{fact}: access was refused", detail=said, hint=hint)
    if _NO_ACCOUNT.search(text):
        return ExternalError(
            f"{fact}: the service account's key cannot be read", hint=_HINT_ACCOUNT
        )
    if _NO_BASE64 in text:
        return ExternalError(f"{fact}: the account's key must be Base64", hint=_HINT_KEYS)
    if _ODD_KEY.search(text):
        return ExternalError(
            f"{fact}: a key in it cannot be named",
            detail=said,
            hint=(
                "Rename objects with two slashes in a row, with . or .. as a part, or with "
                "control characters."
            ),
        )
    hint = _HINT_REACH if _UNREACHABLE.search(text) else ""
    return ExternalError(fact, code=Code.GET_REMOTE_DATA_ERROR, detail=said, hint=hint)


def _both_times(text: str) -> str:
    signed, server = _SIGNED_AT.search(text), _SERVER_TIME.search(text)
    if signed is None or server is None:
        return ""
    return f"This machine signed at {signed[1]}, the clock of the store showed {server[1]}."


def _said(text: str, options: StoreOptions) -> str:
    """Answer status and code of the server, or the first line of the library."""
    said = told_by_server(text) or _FOUND_INSTEAD.sub("a text", text.partition("\n")[0])
    return f"{without(said, hidden_texts(options))[:300].rstrip('.')}."
