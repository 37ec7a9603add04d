"""From options to who asks which stream, and where; options that contradict are refused."""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from penstock.aws.credentials import AwsKeys
from penstock.errors import Code, UserError
from penstock.model.options import Reveal, all_options, from_sealed_pairs, with_values
from penstock.model.secrets import Sealed, shown_value
from penstock.sources.kinesis.client import StreamAccess
from penstock.sources.kinesis.kind import CredentialsProvider, KinesisOptions
from penstock.storage.options import require_both_keys

WHAT = "KINESIS"
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)?-[a-z]+-\d+")
_STREAM = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARN = re.compile(r"arn:[a-z-]+:kinesis:([a-z0-9-]+):\d{12}:stream/([A-Za-z0-9_.-]+)")
_HTTP = ("http://", "https://")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9a-f:.]+")
# As botocore calls them.
_PROVIDERS = {
    CredentialsProvider.DEFAULT: "",
    CredentialsProvider.SIMPLE: "",
    CredentialsProvider.ENV: "env",
    CredentialsProvider.INSTANCE_PROFILE: "iam-role",
}


def revealed_stream(options: KinesisOptions, reveal: Reveal) -> KinesisOptions:
    """Answer the options with values in the place of references, checked together."""
    values = with_values(options, reveal, what=WHAT)
    check_stream(values)
    return values


def check_stream(options: KinesisOptions) -> None:
    """Refuse options that do not have the right form, or do not belong together."""
    for key, found, example in (
        ("aws.region", _REGION.fullmatch(options.region), "eu-west-1"),
        ("kinesis_stream", _STREAM.fullmatch(options.stream), "orders"),
    ):
        if not found:
            raise _unlike(options, key, example)
    require_both_keys(
        ("aws.access_key", options.access_key), ("aws.secret_key", options.secret_key)
    )
    for key, text, lacking, other in (
        ("aws.session_key", options.session_key, "aws.access_key", options.access_key),
        ("property.aws.external.id", options.external_id, "aws.role_arn", options.role_arn),
    ):
        if text and not other:
            raise _refused(f'option "{key}" needs "{lacking}" beside it')
    if options.provider is CredentialsProvider.SIMPLE and not options.access_key:
        raise _refused(
            'option "property.aws.credentials.provider" = simple needs "aws.access_key"'
        )
    if options.role_arn and not options.role_arn.startswith("arn:"):
        shown = _shown(options, "aws.role_arn")
        raise _refused(f'option "aws.role_arn" must be an ARN, not {shown}')
    _check_endpoint(options)
    if options.stream_arn:
        _check_arn(options)
    if len(set(options.pinned)) != len(options.pinned):
        shown = _shown(options, "kinesis_shards").strip('"')
        raise _refused(f'option "kinesis_shards" names a shard twice: {shown}')


def _check_endpoint(options: KinesisOptions) -> None:
    endpoint = options.endpoint
    if "@" in endpoint:
        raise _refused(
            'option "aws.endpoint" must not hold a name or a password',
            hint='Give them as "aws.access_key" and "aws.secret_key".',
        )
    shown = _shown(options, "aws.endpoint")
    if endpoint and not endpoint.lower().startswith(_HTTP):
        raise _refused(f'option "aws.endpoint" must begin with https:// or http://: {shown}')
    if endpoint and not _names_host(endpoint):
        raise _refused(
            f'option "aws.endpoint" must name a host and, if any, a port up to 65535: {shown}',
            hint="Write for example http://127.0.0.1:4567.",
        )


def _names_host(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:
        return False


def _check_arn(options: KinesisOptions) -> None:
    key = "property.aws.kinesis.stream_arn"
    found = _ARN.fullmatch(options.stream_arn)
    if found is None:
        raise _unlike(options, key, "arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
    for what, mine, other in (
        ("aws.region", options.region, found[1]),
        ("kinesis_stream", options.stream, found[2]),
    ):
        if mine != other:
            names = shown_value(key, other, options.origins)
            raise _refused(
                f'option "{key}" names {names}, but "{what}" is {_shown(options, what)}'
            )


def _unlike(options: KinesisOptions, key: str, example: str) -> UserError:
    return _refused(f'option "{key}" must look like {example}, not {_shown(options, key)}')


def _shown(options: KinesisOptions, key: str) -> str:
    """Name the value of an option in a message, or where it comes from."""
    return shown_value(key, dict(all_options(options))[key], options.origins)


def _refused(message: str, *, hint: str = "") -> UserError:
    return UserError(message, code=Code.OPTION_ERR, hint=hint)


def stream_access(values: KinesisOptions) -> StreamAccess:
    """Answer who asks which stream; the values hold no reference any more."""
    names = {**dict(all_options(values)), **dict(values.origins)}
    of_stream = "property.aws.kinesis.stream_arn" if values.stream_arn else "kinesis_stream"
    return StreamAccess(
        keys=AwsKeys(
            region=values.region,
            access_key=values.access_key,
            secret_key=values.secret_key,
            session_token=values.session_key,
            role_arn=values.role_arn,
            role_shown=names["aws.role_arn"],
            external_id=values.external_id,
            provider=_PROVIDERS[values.provider],
            needed_for=f'stream "{names["kinesis_stream"]}"',
            access_key_option="aws.access_key",
            secret_key_option="aws.secret_key",  # noqa: S106 - A name and no password.
            external_id_option="property.aws.external.id",
        ),
        stream=values.stream,
        stream_arn=values.stream_arn,
        stream_shown=names[of_stream],
        region_shown=names["aws.region"],
        endpoint_shown=names["aws.endpoint"],
        endpoint=values.endpoint,
        request_timeout=values.request_timeout,
        connect_timeout=values.connection_timeout,
    )


@lru_cache(maxsize=64)
def unsealed_access(sealed: Sealed) -> StreamAccess:
    """Answer who asks which stream, inside a task."""
    from penstock.secrets.sealing import unsealed_with

    values: Mapping[str, str] = unsealed_with(sealed.key_file, sealed.text)
    return stream_access(from_sealed_pairs(KinesisOptions, values, what=WHAT))
