"""The vault: stores secrets sealed, and gives their values to those who need them.

Invariant: a value leaves the vault only as the answer of ``reveal`` and ``unsealed``; what is
stored, and what is handed to tasks, is sealed, and no message holds a value.
"""

import json
import os
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Protocol

from penstock.errors import Code, UserError
from penstock.model.schema import quoted_name
from penstock.model.secrets import (
    EnvironmentReference,
    FileReference,
    Sealed,
    SealedSecret,
    SecretRecord,
    SecretReference,
    reference_of,
)
from penstock.secrets.sealing import Sealer, load_sealer

_FILE_BYTES_MAX = 1_048_576


class SecretStore(Protocol):
    """Where sealed secrets are stored: the catalog."""

    def create_secret(self, secret: SealedSecret) -> None:
        """Store a secret; refuse a name that is taken."""
        ...

    def change_secret(self, name: str, value_by_key: Mapping[str, str], *, key_id: str) -> None:
        """Add or replace sealed values of a secret."""
        ...

    def secret(self, name: str) -> SecretRecord | None:
        """Return the secret with this name."""
        ...

    def secrets(self) -> tuple[SecretRecord, ...]:
        """Return all secrets by name."""
        ...


class Vault:
    """The secrets of a catalog, and the key of this node that opens them."""

    def __init__(self, catalog: SecretStore, *, key_file: Path) -> None:
        self._catalog = catalog
        self.key_file = key_file

    def store(self, name: str, values: Mapping[str, str]) -> None:
        """Store a new secret; refuse a name that is taken."""
        self._catalog.create_secret(self.sealed_secret(name, values))

    def change(self, name: str, values: Mapping[str, str]) -> None:
        """Add values to a secret, or replace those with the same keys."""
        sealed = self.sealed_secret(name, values)
        self._catalog.change_secret(name, sealed.value_by_key, key_id=sealed.key_id)

    def sealed_secret(
        self, name: str, values: Mapping[str, str], *, job_id: str | None = None
    ) -> SealedSecret:
        """Answer a secret as it may be stored; a job's own is created together with it."""
        sealer = self._sealer()
        return SealedSecret(
            name=name,
            value_by_key={key.lower(): sealer.seal(value) for key, value in values.items()},
            key_id=sealer.key_id,
            job_id=job_id,
        )

    def free_name(self, name: str, *, job_id: str | None) -> str:
        """Answer a name for a job's own secret: the given one, with a number if it is taken."""
        for number in count(1):
            wanted = name if number == 1 else f"{name}_{number}"
            taken = self._catalog.secret(wanted)
            if taken is None or (job_id is not None and taken.job_id == job_id):
                return wanted
        raise AssertionError("unreachable")

    def reveal(self, text: str, *, option: str) -> str:
        """Answer the value of an option, which may be a reference to it."""
        reference = reference_of(text)
        if not isinstance(reference, SecretReference):
            return _looked_up(text, what=f'option "{option}"')
        stored = self._value(reference.name, option=option)
        return _looked_up(stored, what=f'"{option}" of secret "{reference.name}"')

    def sealed(self, values: Mapping[str, str]) -> str:
        """Answer options as ciphertext, to hand them to tasks."""
        return self._sealer().seal(json.dumps(dict(values)))

    def sealed_for_tasks(self, values: Mapping[str, str]) -> Sealed:
        """Answer options as tasks get them: ciphertext, and where its key lies."""
        return Sealed(text=self.sealed(values), key_file=str(self.key_file.absolute()))

    def reveal_all(self, name: str, *, known: Collection[str]) -> list[tuple[str, str]]:
        """Answer the values of a secret whose keys are known, by one look at the catalog."""
        record = self._catalog.secret(name.lower())
        if record is None:
            raise UserError(
                f'secret "{name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                hint=f"Create it with CREATE SECRET {name} (…).",
            )
        wanted = {key: text for key, text in record.value_by_key.items() if key in known}
        sealer = load_sealer(self.key_file, create=False)
        return [
            (key, _looked_up(sealer.open(text), what=f'"{key}" of secret "{record.name}"'))
            for key, text in wanted.items()
        ]

    def unsealed(self, text: str) -> dict[str, str]:
        """Answer the options that were sealed."""
        options: dict[str, str] = json.loads(
            load_sealer(self.key_file, create=False).open(text)
        )
        return options

    def _sealer(self) -> Sealer:
        # A new key beside secrets that need the old one would hide that the old one is lost.
        create = self.key_file.exists() or not self._catalog.secrets()
        return load_sealer(self.key_file, create=create)

    def _value(self, name: str, *, option: str) -> str:
        """Answer the value of a stored secret that belongs to an option."""
        record = self._catalog.secret(name)
        if record is None:
            raise UserError(
                f'secret "{name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                detail=f'Option "{option}" refers to it.',
                hint=f"Create it with CREATE SECRET {quoted_name(name)} ({option} = '…').",
            )
        sealed = record.value_by_key.get(option.lower())
        if sealed is None:
            raise UserError(
                f'secret "{name}" has no value for "{option}"',
                code=Code.META_NOT_FOUND_ERR,
                detail=f"Its keys are {', '.join(record.keys)}.",
                hint=f"Add it with ALTER SECRET {quoted_name(name)} ({option} = '…').",
            )
        return load_sealer(self.key_file, create=False).open(sealed)


def _looked_up(text: str, *, what: str) -> str:
    """Answer what a text of the environment or a file refers to, or the text itself."""
    match reference_of(text):
        case EnvironmentReference(variable=variable):
            return _from_environment(variable, what=what)
        case FileReference(path=path):
            return _from_file(path, what=what)
        case _:
            return text


def _from_environment(variable: str, *, what: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise UserError(
            f'variable "{variable}" is not set in the environment of this process',
            code=Code.META_NOT_FOUND_ERR,
            detail=f"It gives {what}.",
            hint="Set it before Penstock is started.",
        )
    return value


def _from_file(path: str, *, what: str) -> str:
    if not Path(path).is_absolute():
        raise UserError(
            f'file "{path}" must be given by its whole path, such as file:/run/secrets/key',
            code=Code.OPTION_ERR,
            detail=f"It gives {what}.",
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
            detail=f"It gives {what}.",
        ) from error
    if len(content) > _FILE_BYTES_MAX:
        raise UserError(
            f'file "{path}" must have at most {_FILE_BYTES_MAX} bytes',
            code=Code.OPTION_ERR,
            detail=f"It gives {what}.",
        )
    return text.removesuffix("\n").removesuffix("\r")
