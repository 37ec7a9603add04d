"""Hand the options of a bucket to tasks, and take them there.

Invariant: a value that stands in a secret, a file or the environment is in no message; where it
comes from is said instead.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from penstock.errors import Code, UserError
from penstock.model.kinesis import KinesisOptions
from penstock.model.options import (
    option_fields,
    option_key,
    parse_options,
    print_options,
)
from penstock.model.sealed import Sealed
from penstock.model.secrets import origins_of, shown_value
from penstock.model.store_options import Provider, StoreOptions
from penstock.storage.stores import Store, open_store
from penstock.storage.uris import Scheme, parse_uri

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
_ORIGINS = "origins"

_T = TypeVar("_T", StoreOptions, KinesisOptions)
Reveal = Callable[[str, str], str]


def revealed(options: StoreOptions, reveal: Reveal) -> StoreOptions:
    """Answer the options with values in the place of references, checked together."""
    values = with_values(options, reveal, what="a bucket")
    check_access(values)
    return values


def with_values(options: _T, reveal: Reveal, *, what: str) -> _T:
    """Answer options with values in the place of references, and where they come from."""
    written = print_options(options)
    origins = origins_of(written)
    pairs = [(key, reveal(key, text)) for key, text in written]
    values = parse_options(type(options), pairs, what=what, origins=origins)
    return replace(values, origins=origins)


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


def sealed_pairs(options: StoreOptions | KinesisOptions) -> dict[str, str]:
    """Answer options as they are sealed: their values, and where these come from."""
    pairs = dict(print_options(options))
    return {**pairs, _ORIGINS: json.dumps(options.origins)} if options.origins else pairs


def from_sealed_pairs(kind: type[_T], pairs: Mapping[str, str], *, what: str) -> _T:
    """Answer the options that were sealed."""
    values = dict(pairs)
    origins = tuple((key, origin) for key, origin in json.loads(values.pop(_ORIGINS, "[]")))
    options = parse_options(kind, values.items(), what=what, origins=origins)
    return replace(options, origins=origins)


def open_sealed(uri: str, sealed: Sealed) -> tuple[Store, str]:
    """Open a store inside a task."""
    return open_store(uri, _unsealed(sealed))


@lru_cache(maxsize=64)
def _unsealed(sealed: Sealed) -> StoreOptions:
    if not sealed.text:
        return StoreOptions()
    from penstock.sealing import unsealed_with

    values = unsealed_with(sealed.key_file, sealed.text)
    return from_sealed_pairs(StoreOptions, values, what="a bucket")
