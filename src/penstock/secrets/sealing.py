"""Encrypt and decrypt texts with the key of a node.

The key is the environment variable PENSTOCK_SECRET_KEY, or else a file that only its owner may
read. Both are derived in the same way, so the text of the file also works as the variable.

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
    """One key; ciphertexts contain its id, so that a wrong key can name the needed one."""

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
                f"a secret was sealed with the key {key_id}, and this node has {self.key_id}",
                code=Code.SETTINGS_ERR,
                hint=f"Bring that key back, as the key file or in {VARIABLE}; "
                "or give the secret's values again with ALTER SECRET.",
            )
        try:
            return self._fernet().decrypt(token.encode()).decode()
        except (InvalidToken, ValueError) as error:
            raise UserError(
                f"a value sealed with the key {key_id} is damaged or truncated",
                code=Code.SETTINGS_ERR,
                hint="Give the secret's values again with ALTER SECRET.",
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
            hint=f"Bring it back from a backup, or give its text in {VARIABLE}.",
        )
    return Sealer(_long_enough(key, f'the key in "{key_file}"'))


def unsealed_with(key_file: str, text: str) -> dict[str, str]:
    """Return the options in a ciphertext; a task needs only the path of the key file."""
    import json

    options: dict[str, str] = json.loads(load_sealer(Path(key_file), create=False).open(text))
    return options


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Derive a key by HKDF; keys of two purposes reveal nothing about each other."""
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
    """Return the text of the key file, None if it is missing; only the owner may read it."""
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
            f'key file "{key_file}" may be read by others than its owner',
            code=Code.SETTINGS_ERR,
            detail=f"Its mode is {stat.S_IMODE(mode):04o}.",
            hint=f'Type: chmod 600 "{key_file}"',
        )
    return content.decode("utf-8", "surrogateescape").strip()


def _create(key_file: Path) -> None:
    """Create the key file atomically; keep an existing one."""
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
