"""The vault, which stores encrypted secrets and reveals their values.

Invariant: only ``reveal`` and ``reveal_all`` return values. The catalog and tasks get
ciphertext, and no message contains a value.
"""

import json
import os
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Protocol

from penstock.errors import Code, UserError
from penstock.model.secrets import (
    EnvironmentReference,
    FileReference,
    Sealed,
    SealedSecret,
    SecretRecord,
    SecretReference,
    reference_of,
)
from penstock.model.text import quoted_name
from penstock.secrets.sealing import Sealer, load_sealer

_FILE_BYTES_MAX = 1_048_576


class SecretStore(Protocol):
    """Storage of encrypted secrets: the catalog."""

    def create_secret(self, secret: SealedSecret) -> None:
        """Store a secret; raise UserError if the name exists."""
        ...

    def change_secret(self, name: str, value_by_key: Mapping[str, str], *, key_id: str) -> None:
        """Add or replace encrypted values of a secret."""
        ...

    def secret(self, name: str) -> SecretRecord | None:
        """Return the secret with this name."""
        ...

    def secrets(self) -> tuple[SecretRecord, ...]:
        """Return all secrets by name."""
        ...


class Vault:
    """The secrets of a catalog, and the key of this node that decrypts them."""

    def __init__(self, catalog: SecretStore, *, key_file: Path) -> None:
        self._catalog = catalog
        self.key_file = key_file

    def store(self, name: str, values: Mapping[str, str]) -> None:
        """Store a new secret; raise UserError if the name exists."""
        self._catalog.create_secret(self.sealed_secret(name, values))

    def change(self, name: str, values: Mapping[str, str]) -> None:
        """Add values to a secret, or replace those with the same keys."""
        sealed = self.sealed_secret(name, values)
        self._catalog.change_secret(name, sealed.value_by_key, key_id=sealed.key_id)

    def sealed_secret(
        self, name: str, values: Mapping[str, str], *, job_id: str | None = None
    ) -> SealedSecret:
        """Return an encrypted secret; the catalog stores a job's own secret with the job."""
        sealer = self._sealer()
        return SealedSecret(
            name=name,
            value_by_key={key.lower(): sealer.seal(value) for key, value in values.items()},
            key_id=sealer.key_id,
            job_id=job_id,
        )

    def unused_name(self, name: str, *, job_id: str | None) -> str:
        """Return the name, with a number appended if another owner uses the name."""
        candidate = name
        for number in count(2):
            existing = self._catalog.secret(candidate)
            if existing is None or (job_id is not None and existing.job_id == job_id):
                break
            candidate = f"{name}_{number}"
        return candidate

    def reveal(self, text: str, *, option: str) -> str:
        """Return the value of an option, which may be a reference."""
        reference = reference_of(text)
        if not isinstance(reference, SecretReference):
            return _resolved(text, what=f'option "{option}"')
        stored = self._value(reference.name, option=option)
        return _resolved(stored, what=f'"{option}" of secret "{reference.name}"')

    def sealed_for_tasks(self, values: Mapping[str, str]) -> Sealed:
        """Encrypt options for tasks; the result contains the path of the key file."""
        text = self._sealer().seal(json.dumps(dict(values)))
        return Sealed(text=text, key_file=str(self.key_file.absolute()))

    def reveal_all(self, name: str, *, known: Collection[str]) -> list[tuple[str, str]]:
        """Return the values of the known keys of a secret."""
        record = self._record(name, needed="…")
        sealer = load_sealer(self.key_file, create=False)
        return [
            (key, _resolved(sealer.open(text), what=f'"{key}" of secret "{record.name}"'))
            for key, text in record.value_by_key.items()
            if key in known
        ]

    def _sealer(self) -> Sealer:
        # If secrets exist, a new key would hide that their key was lost.
        create = self.key_file.exists() or not self._catalog.secrets()
        return load_sealer(self.key_file, create=create)

    def _value(self, name: str, *, option: str) -> str:
        """Return the value that a stored secret has for an option."""
        detail = f'Option "{option}" refers to this secret.'
        record = self._record(name, needed=f"{option} = '…'", detail=detail)
        sealed = record.value_by_key.get(option.lower())
        if sealed is None:
            raise UserError(
                f'secret "{name}" has no value for "{option}"',
                code=Code.META_NOT_FOUND_ERR,
                detail=f"The secret has the keys {', '.join(record.keys)}.",
                hint=f"Add the value with ALTER SECRET {quoted_name(name)} ({option} = '…').",
            )
        return load_sealer(self.key_file, create=False).open(sealed)

    def _record(self, name: str, *, needed: str, detail: str = "") -> SecretRecord:
        record = self._catalog.secret(name.lower())
        if record is None:
            raise UserError(
                f'secret "{name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                detail=detail,
                hint=f"Create the secret with CREATE SECRET {quoted_name(name)} ({needed}).",
            )
        return record


def _resolved(text: str, *, what: str) -> str:
    """Return the value of a reference to the environment or a file, or the text itself."""
    match reference_of(text):
        case EnvironmentReference(variable=variable):
            value = os.environ.get(variable)
            if value is not None:
                return value
            raise UserError(
                f'variable "{variable}" is not set in the environment of this process',
                code=Code.META_NOT_FOUND_ERR,
                detail=f"The value of {what} comes from this variable.",
                hint="Set the variable before you start Penstock.",
            )
        case FileReference(path=path):
            return _from_file(path, what=what)
        case _:
            return text


def _from_file(path: str, *, what: str) -> str:
    if not Path(path).is_absolute():
        raise UserError(
            f'file "{path}" must be an absolute path, such as file:/run/secrets/key',
            detail=f"The value of {what} comes from this file.",
        )
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(
            f'file "{path}" could not be read: {reason}',
            code=Code.META_NOT_FOUND_ERR,
            detail=f"The value of {what} comes from this file.",
        ) from error
    if len(content) > _FILE_BYTES_MAX:
        raise UserError(
            f'file "{path}" must have at most {_FILE_BYTES_MAX} bytes',
            detail=f"The value of {what} comes from this file.",
        )
    return text.removesuffix("\n").removesuffix("\r")
