"""Credentials of AWS: given keys, an assumed role, or the default chain.

A wrong variable or profile is a UserError, because only the user can fix it. Any other failure
is an ExternalError and is retried. Credentials are cached and refreshed before expiry.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from penstock.errors import ExternalError, UserError

Credentials = dict[str, Any]

_CACHES_MAX = 64
# Keys of the environment or of a profile are read again after this time.
_CHAIN_LIFE = timedelta(minutes=10)
# Credentials that expire within this time are refreshed.
_LIFE_LEFT_MIN = timedelta(minutes=6)
_CHAIN = "environment, profile, web identity, container and instance"
# A slow credentials service must not block the callers for long.
_CLIENT_CONFIG: dict[str, Any] = {
    "connect_timeout": 2,
    "read_timeout": 2,
    "retries": {"total_max_attempts": 2, "mode": "standard"},
}

_HINT_FILES = (
    "Profiles are read from ~/.aws/config and ~/.aws/credentials, or from the files in "
    "AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE."
)
_PLACE_BY_PROVIDER = {
    "env": "the environment",
    "shared-credentials-file": "the credentials file",
    "config-file": "the profile",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """Keys, a role, or neither for the default chain; and names for messages."""

    region: str
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    role_arn: str = ""
    # The name of the role in messages.
    role_shown: str = ""
    external_id: str = ""
    # The only provider of the default chain to use, by botocore's name; all of them if empty.
    provider: str = ""
    # The purpose of the credentials and the names of the options, for messages.
    needed_for: str
    access_key_option: str
    secret_key_option: str
    external_id_option: str


class CredentialsCache:
    """Cache of credentials, which are requested again shortly before they expire."""

    def __init__(self, request: Callable[[], Credentials]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._cached: Credentials | None = None

    def __call__(self) -> Credentials:
        """Return credentials that stay valid for some minutes."""
        with self._lock:
            if self._cached is None or _expires_soon(self._cached):
                self._cached = self._request()
            return self._cached

    def invalidate(self) -> None:
        """Drop the cached credentials, which AWS refused; the next call requests new ones."""
        with self._lock:
            self._cached = None


def _expires_soon(credentials: Credentials) -> bool:
    expires_at: datetime | None = credentials["expires_at"]
    return expires_at is not None and expires_at < datetime.now(UTC) + _LIFE_LEFT_MIN


@lru_cache(maxsize=_CACHES_MAX)
def credentials_for(keys: AwsKeys) -> CredentialsCache:
    """Return the shared cache of these credentials; raise at once if none are found."""
    if keys.role_arn:
        request = _assume_role
    elif keys.access_key:
        request = _given
    else:
        request = _search_chain
    cache = CredentialsCache(partial(request, keys))
    cache()
    return cache


def _given(keys: AwsKeys) -> Credentials:
    return _credentials(keys.access_key, keys.secret_key, keys.session_token or None)


def _search_chain(keys: AwsKeys) -> Credentials:
    """Search the environment, profile, web identity, container and instance."""
    from botocore.config import Config
    from botocore.credentials import CredentialResolver
    from botocore.session import get_session

    advice = (
        f'Set the options "{keys.access_key_option}" and "{keys.secret_key_option}", or the '
        "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )
    with aws_failures(
        f"credentials for {keys.needed_for} could not be loaded",
        hint=f"Check the credentials of this process. {advice}",
    ):
        # A session caches keys even if their file changes, so each search needs a new session.
        session = get_session()
        # The web identity provider calls a service of AWS with this configuration.
        session.set_default_client_config(Config(**_CLIENT_CONFIG))
        chain = session.get_component("credential_provider").providers
        providers = [provider for provider in chain if keys.provider in ("", provider.METHOD)]
        found = CredentialResolver(providers).load_credentials()
        if found is None:
            raise ExternalError(
                f"no credentials were found for {keys.needed_for}",
                detail=f"Searched: {keys.provider or _CHAIN}.",
                hint=advice,
            )
        frozen = found.get_frozen_credentials()
    expires_at = datetime.now(UTC) + _CHAIN_LIFE
    return _credentials(
        frozen.access_key, frozen.secret_key, frozen.token, expires_at=expires_at
    )


def _assume_role(keys: AwsKeys) -> Credentials:
    import boto3
    from botocore.config import Config

    request = {"RoleArn": keys.role_arn, "RoleSessionName": "penstock"}
    if keys.external_id:
        request["ExternalId"] = keys.external_id
    with aws_failures(
        f'role "{keys.role_shown}" could not be assumed',
        hint=f"Check the role's trust policy, the keys and {keys.external_id_option}.",
    ):
        # boto3's shared session caches keys and is not thread-safe.
        session = boto3.Session(
            region_name=keys.region,
            aws_access_key_id=keys.access_key or None,
            aws_secret_access_key=keys.secret_key or None,
            aws_session_token=keys.session_token or None,
        )
        with closing(session.client("sts", config=Config(**_CLIENT_CONFIG))) as client:
            assumed = client.assume_role(**request)["Credentials"]
    return _credentials(
        assumed["AccessKeyId"],
        assumed["SecretAccessKey"],
        assumed["SessionToken"],
        # obstore accepts only Python's own UTC.
        expires_at=assumed["Expiration"].astimezone(UTC),
    )


def _credentials(
    access_key: str, secret_key: str, token: str | None, *, expires_at: datetime | None = None
) -> Credentials:
    return {
        "access_key_id": access_key,
        "secret_access_key": secret_key,
        "token": token,
        "expires_at": expires_at,
    }


@contextmanager
def aws_failures(fact: str, *, hint: str) -> Iterator[None]:
    """Convert errors of botocore inside the block to errors of Penstock.

    ``hint`` is for failures that are retried; each UserError has a hint of its own.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError, ValueError, RuntimeError) as error:
        # The original message of AWS may contain names that must not be shown.
        raise _user_error(fact, error) or _external_error(fact, error, hint=hint) from None


def _user_error(fact: str, error: Exception) -> UserError | None:
    from botocore import exceptions as botocore

    values = getattr(error, "kwargs", {})
    match error:
        case botocore.PartialCredentialsError():
            place = _PLACE_BY_PROVIDER.get(values["provider"], values["provider"])
            reason = f"{values['cred_var']} is missing in {place}"
            hint = "Set both the access key and the secret key, or neither."
        case botocore.ProfileNotFound():
            reason = f'profile "{values["profile"]}" does not exist'
            hint = f"Correct or unset AWS_PROFILE, or create the profile. {_HINT_FILES}"
        case botocore.ConfigParseError() | botocore.ConfigNotFound():
            reason = f'file "{values["path"]}" cannot be parsed as AWS profiles'
            hint = _HINT_FILES
        case botocore.InvalidConfigError() | botocore.UnknownCredentialError():
            reason = "the profile has no usable source of credentials"
            hint = _HINT_FILES
        case ValueError():
            reason = "the value of an AWS_* environment variable cannot be used"
            hint = (
                "Check AWS_CONTAINER_CREDENTIALS_FULL_URI, which requires https:// for most "
                "hosts, and the other variables of a container or an instance."
            )
        case _:
            return None
    return UserError(f"{fact}: {reason}", hint=hint)


def _external_error(fact: str, error: Exception, *, hint: str) -> ExternalError:
    response = getattr(error, "response", None) or {}
    code = response.get("Error", {}).get("Code", "")
    provider = getattr(error, "kwargs", {}).get("provider", "")
    reason = code or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        reason = f'file "{error.filename}": {error.strerror}'
    return ExternalError(
        f"{fact}: {reason}{f' from {provider}' if provider else ''}", hint=hint
    )
