"""Options of a bucket: its address and credentials, checked together.

Invariant: a value that stands in a secret, a file or the environment is in no message; where it
comes from is said instead.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from penstock.errors import Code, UserError
from penstock.model.options import (
    Reveal,
    option,
    option_fields,
    option_key,
    print_options,
    sealed_pairs,
    secret_options,
    with_values,
)
from penstock.model.secrets import Origins, Sealed, shown_value
from penstock.storage.uris import Scheme, parse_uri


class Provider(StrEnum):
    """Whose object store it is; Doris' names."""

    S3 = "s3"
    AWS = "aws"
    MINIO = "minio"
    CEPH = "ceph"
    OSS = "oss"
    COS = "cos"
    OBS = "obs"
    BOS = "bos"
    GCP = "gcp"
    AZURE = "azure"


class Choice(StrEnum):
    """Yes, no, or what fits the store."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a bucket is reached; all texts may be references to secrets."""

    endpoint: str = option(
        "Address of an S3 server that is not AWS itself, such as https://minio.example.com.",
        key="s3.endpoint",
        default="",
    )
    region: str = option(
        "Region of the bucket; that of the environment, or us-east-1, when absent.",
        key="s3.region",
        default="",
    )
    access_key: str = option(
        "Access key (of Azure: the account's name); without it the default chain is asked.",
        key="s3.access_key",
        default="",
        secret=True,
    )
    secret_key: str = option(
        "Secret key that belongs to the access key (of Azure: the account's key).",
        key="s3.secret_key",
        default="",
        secret=True,
    )
    session_token: str = option(
        "Session token of temporary keys.", key="s3.session_token", default="", secret=True
    )
    role_arn: str = option(
        "Role to assume with these keys, or with those of the default chain.",
        key="s3.role_arn",
        default="",
    )
    external_id: str = option(
        "External id that the role asks for.", key="s3.external_id", default=""
    )
    path_style: Choice = option(
        "Whether the bucket stands in the path (true) or in the host name (false); auto: in "
        "the path of a given endpoint, unless that is one of AWS or the provider is oss, cos, "
        "obs or bos.",
        key="use_path_style",
        default=Choice.AUTO,
    )
    provider: Provider = option("Whose object store it is.", default=Provider.S3)
    service_account: str = option(
        "Key of a Google service account as JSON, for gs://.",
        key="gs.service_account",
        default="",
        secret=True,
    )
    # Where values come from that messages name by that alone; only beside values, never stored.
    origins: Origins = field(default=(), compare=False, metadata={"transient": True})


_MASK = "***"


def hidden_texts(options: StoreOptions) -> tuple[str, ...]:
    """Answer the values of secret options and of references, longest first."""
    origins = dict(options.origins)
    from_elsewhere = {text for key, text in print_options(options) if key in origins}
    found = {text for _, text in secret_options(options)} | from_elsewhere
    # Libraries repeat an address with other words around it.
    hosts = {urlsplit(text).netloc for text in from_elsewhere if "://" in text}
    return tuple(sorted((found | hosts) - {""}, key=len, reverse=True))


def without(text: str, hidden: Iterable[str]) -> str:
    """Answer a text with a mask over what must not be seen."""
    for value in hidden:
        text = text.replace(value, _MASK)
    return text


_HTTP = ("http://", "https://")

_OF_GOOGLE = frozenset({"gs.service_account"})
# Which options mean something to which store.
_MEANINGS = {
    Scheme.FILE: frozenset[str](),
    Scheme.S3: frozenset(map(option_key, option_fields(StoreOptions))) - _OF_GOOGLE,
    Scheme.GS: _OF_GOOGLE | {"provider"},
    Scheme.AZ: frozenset({"s3.endpoint", "s3.access_key", "s3.secret_key", "provider"}),
}
# Whose store it may be said to be.
_PROVIDERS = {
    Scheme.S3: frozenset(Provider) - {Provider.AZURE},
    Scheme.GS: frozenset({Provider.GCP}),
    Scheme.AZ: frozenset({Provider.AZURE}),
}


def revealed(options: StoreOptions, reveal: Reveal) -> StoreOptions:
    """Answer the options with values in the place of references, checked together."""
    values = with_values(options, reveal, what="a bucket")
    check_access(values)
    return values


def require_both_keys(*keys: tuple[str, str]) -> None:
    """Refuse one of two keys, given as option and value, without the other."""
    given = [option for option, value in keys if value]
    lacking = [option for option, value in keys if not value]
    if given and lacking:
        raise UserError(
            f'option "{given[0]}" needs "{lacking[0]}" beside it',
            code=Code.OPTION_ERR,
            hint="Give both keys, or none of them for the default chain.",
        )


def check_access(options: StoreOptions) -> None:
    """Refuse options that do not belong together."""
    require_both_keys(
        ("s3.access_key", options.access_key), ("s3.secret_key", options.secret_key)
    )
    if options.session_token and not options.access_key:
        raise UserError(
            'option "s3.session_token" needs "s3.access_key" and "s3.secret_key" beside it',
            code=Code.OPTION_ERR,
        )
    if options.external_id and not options.role_arn:
        raise UserError(
            'option "s3.external_id" needs "s3.role_arn" beside it', code=Code.OPTION_ERR
        )
    if "@" in options.endpoint:
        raise UserError(
            'option "s3.endpoint" must not hold a name or a password',
            code=Code.OPTION_ERR,
            hint='Give them as "s3.access_key" and "s3.secret_key".',
        )
    if "://" in options.endpoint and not options.endpoint.lower().startswith(_HTTP):
        shown = shown_value("s3.endpoint", options.endpoint, options.origins)
        raise UserError(
            f'option "s3.endpoint" must begin with https:// or http://: {shown}',
            code=Code.OPTION_ERR,
        )
    if options.role_arn and not options.role_arn.startswith("arn:"):
        shown = shown_value("s3.role_arn", options.role_arn, options.origins)
        raise UserError(
            f'option "s3.role_arn" must be an ARN, not {shown}',
            code=Code.OPTION_ERR,
            hint="Write it like arn:aws:iam::123456789012:role/loader.",
        )


def require_meaning(uri: str, options: StoreOptions) -> None:
    """Refuse options that the store of a URI knows nothing of."""
    scheme = parse_uri(uri).scheme
    given = [key for key, _ in print_options(options)]
    odd = [key for key in given if key not in _MEANINGS[scheme]]
    if odd:
        known = ", ".join(sorted(_MEANINGS[scheme]))
        raise UserError(
            f'option "{odd[0]}" has no meaning for {scheme}://',
            code=Code.OPTION_ERR,
            hint=f"Leave it out; {scheme}:// takes {known}." if known else "",
        )
    if "provider" in given and options.provider not in _PROVIDERS[scheme]:
        known = ", ".join(sorted(_PROVIDERS[scheme]))
        raise UserError(
            f'option "provider" must be one of {known} for {scheme}://, '
            f'not "{options.provider}"',
            code=Code.OPTION_ERR,
            hint="Buckets of Google are gs://bucket/…, containers of Azure az://container/….",
        )


def seal(options: StoreOptions, seal_text: Callable[[Mapping[str, str]], Sealed]) -> Sealed:
    """Encrypt options for tasks; nothing is sealed where there are none."""
    pairs = sealed_pairs(options)
    return seal_text(pairs) if pairs else Sealed()
