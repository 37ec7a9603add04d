"""References to secrets, and the ciphertext that tasks receive.

A reference can be printed, stored and logged. The value of a reference must not be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """A named set of encrypted values; a secret that a job owns is deleted with the job."""

    name: str
    value_by_key: Mapping[str, str]
    key_id: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRecord:
    """A secret as it is stored."""

    name: str
    value_by_key: Mapping[str, str]
    key_id: str
    job_id: str | None
    created_at: datetime
    changed_at: datetime

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the secret's values."""
        return tuple(self.value_by_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Encrypted options of a bucket; empty if there are none."""

    text: str = ""
    key_file: str = ""


_STORED = "secret:"
_ENVIRONMENT = "env:"
_FILE = "file:"

# Replaces a hidden value.
MASKED = "***"

# A key is secret if its last part is one of these names. The last part can also end with "_"
# and such a name.
_NAMES = frozenset(
    {
        "access_key",
        "access_key_id",
        "account_key",
        "passphrase",
        "password",
        "private_key",
        "sas_token",
        "secret",
        "secret_access_key",
        "secret_key",
        "service_account",
        "session_key",
        "session_token",
        "token",
    }
)
_NAME_ENDINGS = tuple(f"_{name}" for name in _NAMES)
_ENDINGS = (
    "access.key",
    "jaas.config",
    "key.pem",
    "keystore.key",
    "secret.key",
    "session.token",
)
_ANYWHERE = "private.key"
# A key with one of these parts may be a misspelled secret key, or a secret key of another
# system.
_RESEMBLING = ("key", "secret", "token", "passw", "passphrase", "credential", "account")
_HARMLESS = frozenset({"path_partition_keys", "property.aws.credentials.provider"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A secret of the catalog; the key of the option selects one of its values."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReference:
    """An environment variable of the process that needs the value."""

    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file that holds the value."""

    path: str


Reference = SecretReference | EnvironmentReference | FileReference


def reference_of(text: str) -> Reference | None:
    """Read an option's value as a reference; None for a literal."""
    if text.startswith(_STORED):
        # Names of secrets are case-insensitive, like those of tables.
        return SecretReference(name=text.removeprefix(_STORED).lower())
    if text.startswith(_ENVIRONMENT):
        return EnvironmentReference(variable=text.removeprefix(_ENVIRONMENT))
    if text.startswith(_FILE):
        return FileReference(path=text.removeprefix(_FILE))
    return None


def is_mask(text: str) -> bool:
    """Return whether a text is the mask of a hidden value."""
    return len(text) >= len(MASKED) and not text.strip("*")


# Keys of options, and the references that their values come from, as users write them.
Origins = tuple[tuple[str, str], ...]


def origins_of(pairs: Iterable[tuple[str, str]]) -> Origins:
    """Return the keys of options whose values are references, with the references."""
    found = []
    for key, text in pairs:
        reference = reference_of(text)
        if isinstance(reference, SecretReference):
            found.append((key, f"SECRET '{reference.name}'"))
        elif reference is not None:
            found.append((key, text))
    return tuple(found)


def shown_value(key: str, value: str, origins: Origins) -> str:
    """Format an invalid value for a message; show only its reference if there is one."""
    origin = dict(origins).get(key)
    return f'"{value}"' if origin is None else f"the value of {origin}"


def shown_name(key: str, value: str, origins: Origins) -> str:
    """Return an option's value without quotes for a message, or its reference if it has one."""
    return dict(origins).get(key, value)


def reference_text(reference: Reference) -> str:
    """Write a reference so that ``reference_of`` reads it back."""
    match reference:
        case SecretReference(name=name):
            return f"{_STORED}{name}"
        case EnvironmentReference(variable=variable):
            return f"{_ENVIRONMENT}{variable}"
        case FileReference(path=path):
            return f"{_FILE}{path}"


def is_secret_key(key: str) -> bool:
    """Return whether the value of a key must be hidden; if in doubt, return True."""
    folded = key.strip().casefold().replace("-", "_")
    name = folded.rpartition(".")[2]
    return (
        name in _NAMES
        or name.endswith(_NAME_ENDINGS)
        or folded.endswith(_ENDINGS)
        or _ANYWHERE in folded
    )


def resembles_secret_key(key: str) -> bool:
    """Return whether a key may be a misspelled secret key, so that its value is hidden."""
    folded = key.strip().casefold()
    return folded not in _HARMLESS and any(part in folded for part in _RESEMBLING)


def mentions_secret_key(text: str) -> bool:
    """Return whether a text that cannot be parsed may contain a secret key."""
    folded = text.casefold().replace("-", "_")
    return any(part in folded for part in (*_NAMES, *_ENDINGS, *_RESEMBLING))
