"""Encrypt and decrypt texts with the key of a node.

The key is the environment variable PENSTOCK_SECRET_KEY, or the content of a file that only its
owner can read. The encryption key is derived from either in the same way. So the content of the
file is also a valid value of the variable.

Invariant: no message contains a key or a ciphertext; messages show the id of a key.
"""

import os
import stat
import uuid
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Code, ExternalError, UserError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

VARIABLE = "PENSTOCK_SECRET_KEY"
CHARACTERS_MIN = 16

_SALT = b"penstock"
_OWNER_ONLY = 0o600
_OTHERS = 0o077
_RANDOM_BYTES = 32
_ID_BYTES = 6
_FILE_BYTES_MAX = 65_536


class Sealer:
    """An encryption key; ciphertexts contain its id, so that errors can name the needed key."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("utf-8", "surrogateescape")
        self.key_id = _derived(self._key, b"id")[:_ID_BYTES].hex()

    def seal(self, text: str) -> str:
        """Return ciphertext that only this key decrypts."""
        return f"{self.key_id}:{self._fernet().encrypt(text.encode()).decode()}"

    def open(self, sealed: str) -> str:
        """Return the plain text; raise UserError if another key encrypted it."""
        from cryptography.fernet import InvalidToken

        key_id, _, token = sealed.partition(":")
        if key_id != self.key_id:
            raise UserError(
                f"a secret was encrypted with the key {key_id}, but this node has "
                f"{self.key_id}",
                code=Code.SETTINGS_ERR,
                hint=f"Restore that key in the key file or in {VARIABLE}, "
                "or set the secret's values again with ALTER SECRET.",
            )
        try:
            return self._fernet().decrypt(token.encode()).decode()
        except (InvalidToken, ValueError) as error:
            raise UserError(
                f"a value encrypted with the key {key_id} is damaged or truncated",
                code=Code.SETTINGS_ERR,
                hint="Set the secret's values again with ALTER SECRET.",
            ) from error

    def _fernet(self) -> "Fernet":
        # Imported late: most statements need no secret.
        from base64 import urlsafe_b64encode

        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(_derived(self._key, b"seal")))


def load_sealer(key_file: Path, *, create: bool) -> Sealer:
    """Return the sealer of this node; ``create`` creates a missing key file."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return Sealer(_long_enough(given, f"the key in {VARIABLE}"))
    key = _read(key_file)
    if key is None and create:
        _create(key_file)
        key = _read(key_file)
    if key is None:
        raise UserError(
            f'key file "{key_file}" does not exist',
            code=Code.SETTINGS_ERR,
            hint=f"Restore the file from a backup, or set {VARIABLE} to its content.",
        )
    return Sealer(_long_enough(key, f'the key in "{key_file}"'))


def unsealed_with(key_file: str, text: str) -> dict[str, str]:
    """Decrypt options with the key in a file; tasks receive only the path of the file."""
    import json

    options: dict[str, str] = json.loads(load_sealer(Path(key_file), create=False).open(text))
    return options


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Derive a key with HKDF; keys for two purposes reveal nothing about each other."""
    return digest(digest(_SALT, key, sha256), purpose + b"\1", sha256)


def _long_enough(key: str, what: str) -> str:
    if len(key) < CHARACTERS_MIN:
        raise UserError(
            f"{what} must have at least {CHARACTERS_MIN} characters, not {len(key)}",
            code=Code.SETTINGS_ERR,
            hint="Use 32 random bytes, for example the output of openssl rand -hex 32.",
        )
    return key


def _read(key_file: Path) -> str | None:
    """Return the content of the key file; None if the file does not exist.

    Raise UserError if users other than the owner have access to the file.
    """
    try:
        with key_file.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed(key_file, "read", error) from error
    if stat.S_IMODE(mode) & _OTHERS:
        raise UserError(
            f'key file "{key_file}" must be accessible only to its owner',
            code=Code.SETTINGS_ERR,
            detail=f"The mode of the file is {stat.S_IMODE(mode):04o}.",
            hint=f'Run: chmod 600 "{key_file}"',
        )
    return content.decode("utf-8", "surrogateescape").strip()


def _create(key_file: Path) -> None:
    """Create the key file atomically; an existing file is not replaced."""
    draft = key_file.with_name(f"{key_file.name}.{uuid.uuid4().hex}")
    try:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        with os.fdopen(opened, "w") as file:
            file.write(os.urandom(_RANDOM_BYTES).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link does not replace the file of another process.
            key_file.hardlink_to(draft)
        except FileExistsError:
            return
        finally:
            draft.unlink()
        _flush_folder(key_file.parent)
    except OSError as error:
        raise _failed(key_file, "created", error) from error


def _flush_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _failed(key_file: Path, done: str, error: OSError) -> ExternalError:
    return ExternalError(
        f'key file "{key_file}" could not be {done}: {error.strerror}', code=Code.STORAGE_ERR
    )
