"""Credentials of a job: references in its definition, values in a secret of its own.

Invariant: a literal secret of a statement is in no value that is stored or shown. It goes into
a secret that belongs to the job, in the transaction that stores the definition.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.model.files import FilesOptions
from penstock.model.options import parse_options, print_options, secret_options
from penstock.model.secrets import SecretReference, reference_of, reference_text
from penstock.model.store_options import StoreOptions
from penstock.sql.statements import Insert, SourceCall
from penstock.storage.access import require_meaning, revealed
from penstock.vault import Vault

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSecret:
    """Values that a job keeps for itself, still in the clear; they are never printed."""

    name: str
    values: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"JobSecret(name={self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccess:
    """The options of a source with references only, and what stands behind them now."""

    source: FilesOptions
    values: StoreOptions
    secret: JobSecret | None


def read_source(
    call: SourceCall, *, job: str, job_id: str | None, vault: Vault
) -> SourceAccess:
    """Read the options of a source call and take literal secrets out of them.

    ``job_id`` is None for a job that is being created.
    """
    given = parse_options(FilesOptions, call.options, what=call.function)
    require_meaning(given.uri, given.store)
    values = revealed(given.store, lambda key, text: vault.reveal(text, option=key))
    source, secret = without_literals(
        given, what=call.function, job=job, job_id=job_id, vault=vault
    )
    return SourceAccess(source=source, values=values, secret=secret)


def without_literals(
    given: _T, *, what: str, job: str, job_id: str | None, vault: Vault
) -> tuple[_T, JobSecret | None]:
    """Answer options with references in the place of literal secrets, and those secrets."""
    literals = tuple(
        (key, text) for key, text in secret_options(given) if reference_of(text) is None
    )
    if not literals:
        return given, None
    name = vault.free_name(f"{job}_credentials".lower(), job_id=job_id)
    reference = reference_text(SecretReference(name=name))
    pairs = {**dict(print_options(given)), **{key: reference for key, _ in literals}}
    source = parse_options(type(given), pairs.items(), what=what)
    return source, JobSecret(name=name, values=literals)


def without_options(insert: Insert) -> Insert:
    """Answer the INSERT with an empty call of its source; the options are kept elsewhere."""
    call = f"{insert.source.function}()"
    begin, end = insert.source.start, insert.source.end
    return replace(
        insert,
        select=insert.select[:begin] + call + insert.select[end:],
        source=replace(insert.source, end=begin + len(call)),
    )
