"""Credentials of AWS: given keys, an assumed role, or the default chain.

What stands wrong in the environment or in a file of profiles heals only by hand; everything
else, such as a service that lends keys and does not answer, may be there a moment later.

They are lent: what ends is asked for again in time, by whoever needs it next.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from penstock.errors import Code, ExternalError, PenstockError, UserError

_HINT_FILES = (
    "Profiles stand in ~/.aws/config and ~/.aws/credentials, or where AWS_CONFIG_FILE and "
    "AWS_SHARED_CREDENTIALS_FILE say."
)

# As botocore calls them.
_PLACES = {
    "env": "the environment",
    "shared-credentials-file": "the file of credentials",
    "config-file": "the profile",
}


@contextmanager
def asking_aws(fact: str, *, hint: str) -> Iterator[None]:
    """Turn what botocore raises inside the block into an error of ours.

    ``hint`` is for what may heal; what must be mended by hand has a hint of its own.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError, ValueError, RuntimeError) as error:
        # What AWS says may name what no message of ours does.
        raise _mended_by_hand(fact, error) or _healing(fact, error, hint=hint) from None


def _mended_by_hand(fact: str, error: Exception) -> PenstockError | None:
    from botocore import exceptions as of_botocore

    told = getattr(error, "kwargs", {})
    match error:
        case of_botocore.PartialCredentialsError():
            place = _PLACES.get(told["provider"], told["provider"])
            reason = f"{told['cred_var']} is lacking in {place}"
            hint = "Set the access key and the secret key, both of them or none."
        case of_botocore.ProfileNotFound():
            reason = f'there is no profile "{told["profile"]}"'
            hint = f"Correct or unset AWS_PROFILE, or write the profile. {_HINT_FILES}"
        case of_botocore.ConfigParseError() | of_botocore.ConfigNotFound():
            reason = f'file "{told["path"]}" cannot be read as profiles'
            hint = _HINT_FILES
        case of_botocore.InvalidConfigError() | of_botocore.UnknownCredentialError():
            reason = "the profile does not say who lends its keys"
            hint = _HINT_FILES
        case ValueError():
            reason = "a variable whose name begins with AWS_ cannot be used"
            hint = (
                "Correct AWS_CONTAINER_CREDENTIALS_FULL_URI, which may name only some hosts "
                "without https://, or the other variables of a container or an instance."
            )
        case _:
            return None
    return UserError(f"{fact}: {reason}", code=Code.OPTION_ERR, hint=hint)


def _healing(fact: str, error: Exception, *, hint: str) -> ExternalError:
    answer = getattr(error, "response", None) or {}
    code = answer.get("Error", {}).get("Code", "")
    provider = getattr(error, "kwargs", {}).get("provider", "")
    reason = code or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        reason = f'file "{error.filename}": {error.strerror}'
    return ExternalError(f"{fact}: {reason}{f' of {provider}' if provider else ''}", hint=hint)


_LENDERS_MAX = 64
# Keys of the environment or of a profile are looked at again after this time.
_CHAIN_LIFE = timedelta(minutes=10)
# What ends within this time is not lent any more.
_LEFT_MIN = timedelta(minutes=6)

# Whoever lends credentials must not hold up those who wait for them.
_LENDING: dict[str, Any] = {
    "connect_timeout": 2,
    "read_timeout": 2,
    "retries": {"total_max_attempts": 2, "mode": "standard"},
}

_ASKED = "Asked: environment, profile, web identity, container and instance."

Credentials = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """Who asks: keys, or a role, or nobody in particular; and what the options are called."""

    region: str
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    role_arn: str = ""
    # How messages name the role.
    role_shown: str = ""
    external_id: str = ""
    # Where keys that are not given are looked for, as botocore calls it; everywhere if empty.
    provider: str = ""
    # For whom credentials are needed, and the names of the options, for messages.
    needed_for: str
    access_key_option: str
    secret_key_option: str
    external_id_option: str


class Lender:
    """Lends credentials, and keeps them until they are about to end."""

    def __init__(self, ask: Callable[[], Credentials]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._kept: Credentials | None = None

    def __call__(self) -> Credentials:
        """Answer credentials that are good for some minutes."""
        with self._lock:
            if self._kept is None or _ending(self._kept):
                self._kept = self._ask()
            return self._kept

    def forget(self) -> None:
        """Ask anew for the next ones: those that were lent are not good any more."""
        with self._lock:
            self._kept = None


def _ending(credentials: Credentials) -> bool:
    ends_at: datetime | None = credentials["expires_at"]
    return ends_at is not None and ends_at < datetime.now(UTC) + _LEFT_MIN


@lru_cache(maxsize=_LENDERS_MAX)
def lender_of(keys: AwsKeys) -> Lender:
    """Answer who lends credentials; whoever has none to lend says so at once."""
    if keys.role_arn:
        lender = Lender(_assumed(keys))
    elif keys.access_key:
        lender = Lender(_given(keys))
    else:
        lender = Lender(_chain(keys))
    lender()
    return lender


def _given(keys: AwsKeys) -> Callable[[], Credentials]:
    return lambda: {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.session_token or None,
        "expires_at": None,
    }


def _chain(keys: AwsKeys) -> Callable[[], Credentials]:
    """Answer the default chain: environment, profile, web identity, container, instance."""
    from botocore.config import Config
    from botocore.credentials import CredentialResolver
    from botocore.session import get_session

    def credentials() -> Credentials:
        # A session finds keys once and keeps them, also when their file changes.
        session = get_session()
        # The web identity is shown to a service of AWS.
        session.set_default_client_config(Config(**_LENDING))
        chain = session.get_component("credential_provider").providers
        asked = [one for one in chain if keys.provider in ("", one.METHOD)]
        found = CredentialResolver(asked).load_credentials()
        if found is None:
            raise _nobody(keys)
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CHAIN_LIFE,
        }

    def asked_for() -> Credentials:
        with asking_aws(
            f"credentials for {keys.needed_for} could not be looked up",
            hint=f"Check who lends them to this process. {_give(keys)}",
        ):
            return credentials()

    return asked_for


def _nobody(keys: AwsKeys) -> ExternalError:
    return ExternalError(
        f"no credentials were found for {keys.needed_for}",
        detail=_ASKED if not keys.provider else f"Asked: {keys.provider}.",
        hint=_give(keys),
    )


def _give(keys: AwsKeys) -> str:
    return (
        f'Give "{keys.access_key_option}" and "{keys.secret_key_option}", or set '
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )


def _assumed(keys: AwsKeys) -> Callable[[], Credentials]:
    """Answer the credentials of a role, assumed anew before they end."""
    import boto3
    from botocore.config import Config

    own = {
        "aws_access_key_id": keys.access_key or None,
        "aws_secret_access_key": keys.secret_key or None,
        "aws_session_token": keys.session_token or None,
    }
    wanted = {"RoleArn": keys.role_arn, "RoleSessionName": "penstock"}
    if keys.external_id:
        wanted["ExternalId"] = keys.external_id

    def credentials() -> Credentials:
        with asking_aws(
            f'role "{keys.role_shown}" could not be assumed',
            hint=f"Check the role's trust policy, the keys and {keys.external_id_option}.",
        ):
            # The session that boto3 shares keeps keys, and must not be used by two threads.
            session = boto3.Session(region_name=keys.region, **own)
            with closing(session.client("sts", config=Config(**_LENDING))) as client:
                answer = client.assume_role(**wanted)["Credentials"]
        return {
            "access_key_id": answer["AccessKeyId"],
            "secret_access_key": answer["SecretAccessKey"],
            "token": answer["SessionToken"],
            # obstore takes Python's own UTC and no other.
            "expires_at": answer["Expiration"].astimezone(UTC),
        }

    return credentials
