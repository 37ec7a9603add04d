"""Why credentials of AWS could not be lent, and who must act.

What stands wrong in the environment or in a file of profiles heals only by hand; everything
else, such as a service that lends keys and does not answer, may be there a moment later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
