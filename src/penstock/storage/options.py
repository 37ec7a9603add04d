"""Options of a bucket: endpoint and credentials, checked together.

Invariant: no message contains a value of a secret, a file or the environment. Messages show the
reference instead.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from penstock.errors import UserError
from penstock.model.options import (
    Reveal,
    option,
    option_fields,
    option_key,
    print_options,
    resolve_references,
    sealed_pairs,
    secret_options,
)
from penstock.model.secrets import MASKED, Origins, Sealed, shown_value
from penstock.storage.uris import Scheme, parse_uri


class Provider(StrEnum):
    """Vendor of an object store, by Doris' names."""

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
    """True, false, or decided by the kind of store."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Endpoint and credentials of a bucket; every text may be a reference to a secret."""

    endpoint: str = option(
        "Endpoint of an S3 server other than AWS, such as https://minio.example.com.",
        key="s3.endpoint",
        default="",
    )
    region: str = option(
        "Region of the bucket. Default: the region in the environment, or us-east-1.",
        key="s3.region",
        default="",
    )
    access_key: str = option(
        "Access key (Azure: account name). Without it, the default credential chain is used.",
        key="s3.access_key",
        default="",
        secret=True,
    )
    secret_key: str = option(
        "Secret key of the access key (Azure: account key).",
        key="s3.secret_key",
        default="",
        secret=True,
    )
    session_token: str = option(
        "Session token of temporary keys.", key="s3.session_token", default="", secret=True
    )
    role_arn: str = option(
        "Role to assume, with these keys or with the default credential chain.",
        key="s3.role_arn",
        default="",
    )
    external_id: str = option(
        "External id that the role requires.", key="s3.external_id", default=""
    )
    path_style: Choice = option(
        "Whether the bucket is part of the path (true) or of the host name (false). With auto, "
        "the bucket is part of the path if an endpoint is set. AWS and the providers oss, cos, "
        "obs and bos use the host name.",
        key="use_path_style",
        default=Choice.AUTO,
    )
    provider: Provider = option("Vendor of the object store.", default=Provider.S3)
    service_account: str = option(
        "JSON key of a Google service account, for gs://.",
        key="gs.service_account",
        default="",
        secret=True,
    )
    # The references that values come from, for messages; never stored.
    origins: Origins = field(default=(), compare=False, metadata={"transient": True})


_GOOGLE_KEYS = frozenset({"gs.service_account"})
_KEYS_BY_SCHEME = {
    Scheme.FILE: frozenset[str](),
    Scheme.S3: frozenset(map(option_key, option_fields(StoreOptions))) - _GOOGLE_KEYS,
    Scheme.GS: _GOOGLE_KEYS | {"provider"},
    Scheme.AZ: frozenset({"s3.endpoint", "s3.access_key", "s3.secret_key", "provider"}),
}
_PROVIDERS_BY_SCHEME = {
    Scheme.S3: frozenset(Provider) - {Provider.AZURE},
    Scheme.GS: frozenset({Provider.GCP}),
    Scheme.AZ: frozenset({Provider.AZURE}),
}


def resolve_store_options(options: StoreOptions, reveal: Reveal) -> StoreOptions:
    """Replace references with their values, and check the options together."""
    values = resolve_references(options, reveal, what="a bucket")
    check_access(values)
    return values


def check_access(options: StoreOptions) -> None:
    """Raise UserError if options contradict each other or have the wrong form."""
    require_both_keys(
        ("s3.access_key", options.access_key), ("s3.secret_key", options.secret_key)
    )
    if options.session_token and not options.access_key:
        raise UserError(
            'option "s3.session_token" requires "s3.access_key" and "s3.secret_key"'
        )
    if options.external_id and not options.role_arn:
        raise UserError('option "s3.external_id" requires "s3.role_arn"')
    if "@" in options.endpoint:
        raise UserError(
            'option "s3.endpoint" must not contain a user name or a password',
            hint='Use "s3.access_key" and "s3.secret_key" instead.',
        )
    scheme, separator, _ = options.endpoint.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        shown = shown_value("s3.endpoint", options.endpoint, options.origins)
        raise UserError(
            f'option "s3.endpoint" must start with https:// or http://, not {shown}'
        )
    if options.role_arn and not options.role_arn.startswith("arn:"):
        shown = shown_value("s3.role_arn", options.role_arn, options.origins)
        raise UserError(
            f'option "s3.role_arn" must be an ARN, not {shown}',
            hint="Use for example arn:aws:iam::123456789012:role/loader.",
        )


def require_both_keys(*keys: tuple[str, str]) -> None:
    """Raise UserError if only one of two keys, given as (option, value), has a value."""
    given = [option for option, value in keys if value]
    missing = [option for option, value in keys if not value]
    if given and missing:
        raise UserError(
            f'option "{given[0]}" requires "{missing[0]}"',
            hint="Set both keys, or neither to use the default credential chain.",
        )


def require_applicable(uri: str, options: StoreOptions) -> None:
    """Raise UserError if an option does not apply to the store of a URI."""
    scheme = parse_uri(uri).scheme
    given = [key for key, _ in print_options(options)]
    unknown = [key for key in given if key not in _KEYS_BY_SCHEME[scheme]]
    if unknown:
        allowed = ", ".join(sorted(_KEYS_BY_SCHEME[scheme]))
        raise UserError(
            f'option "{unknown[0]}" does not apply to {scheme}://',
            hint=f"Remove the option. Options of {scheme}://: {allowed}." if allowed else "",
        )
    if "provider" in given and options.provider not in _PROVIDERS_BY_SCHEME[scheme]:
        allowed = ", ".join(sorted(_PROVIDERS_BY_SCHEME[scheme]))
        raise UserError(
            f'option "provider" must be one of {allowed} for {scheme}://, '
            f'not "{options.provider}"',
            hint="Use gs://bucket/… for Google, and az://container/… for Azure.",
        )


def seal(options: StoreOptions, seal_text: Callable[[Mapping[str, str]], Sealed]) -> Sealed:
    """Encrypt options for tasks; return an empty value if there are none."""
    pairs = sealed_pairs(options)
    return seal_text(pairs) if pairs else Sealed()


def hidden_values(options: StoreOptions) -> tuple[str, ...]:
    """Return the values of secret options and of references, longest first."""
    origins = dict(options.origins)
    referenced = {text for key, text in print_options(options) if key in origins}
    secret = {text for _, text in secret_options(options)}
    # Libraries print parts of a URL.
    hosts = {urlsplit(text).netloc for text in referenced if "://" in text}
    return tuple(sorted((secret | referenced | hosts) - {""}, key=len, reverse=True))


def mask(text: str, hidden: Iterable[str]) -> str:
    """Replace hidden values in a text."""
    for value in hidden:
        text = text.replace(value, MASKED)
    return text
