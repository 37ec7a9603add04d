"""Hand the options of a bucket to tasks, and take them there."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

from penstock.errors import Code, UserError
from penstock.model.options import parse_options, print_options
from penstock.model.sealed import Sealed
from penstock.model.store_options import StoreOptions
from penstock.storage.stores import Store, open_store
from penstock.storage.uris import Scheme, parse_uri

_HTTP = ("http://", "https://")

_T = TypeVar("_T")
Reveal = Callable[[str, str], str]


def revealed(options: StoreOptions, reveal: Reveal) -> StoreOptions:
    """Answer the options with values in the place of references, checked together."""
    values = with_values(options, reveal, what="a bucket")
    check_access(values)
    return values


def with_values(options: _T, reveal: Reveal, *, what: str) -> _T:
    """Answer options of any class with values in the place of references."""
    pairs = [(key, reveal(key, text)) for key, text in print_options(options)]
    return parse_options(type(options), pairs, what=what)


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
        raise UserError(
            f'option "s3.endpoint" must begin with https:// or http://: "{options.endpoint}"',
            code=Code.OPTION_ERR,
        )
    if options.role_arn and not options.role_arn.startswith("arn:"):
        raise UserError(
            f'option "s3.role_arn" must be an ARN, not "{options.role_arn}"',
            code=Code.OPTION_ERR,
            hint="Write it like arn:aws:iam::123456789012:role/loader.",
        )


def require_meaning(uri: str, options: StoreOptions) -> None:
    """Refuse options of a bucket for files of this machine."""
    given = [key for key, _ in print_options(options)]
    if given and parse_uri(uri).scheme is Scheme.FILE:
        raise UserError(
            f'option "{given[0]}" has no meaning for {Scheme.FILE}://', code=Code.OPTION_ERR
        )


def seal(options: StoreOptions, seal_text: Callable[[Mapping[str, str]], Sealed]) -> Sealed:
    """Encrypt options for tasks; nothing is sealed where there are none."""
    pairs = dict(print_options(options))
    return seal_text(pairs) if pairs else Sealed()


def open_sealed(uri: str, sealed: Sealed) -> tuple[Store, str]:
    """Open a store inside a task."""
    return open_store(uri, _unsealed(sealed))


@lru_cache(maxsize=64)
def _unsealed(sealed: Sealed) -> StoreOptions:
    if not sealed.text:
        return StoreOptions()
    from penstock.sealing import unsealed_with

    values = unsealed_with(sealed.key_file, sealed.text)
    return parse_options(StoreOptions, values.items(), what="a bucket")
