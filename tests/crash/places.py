"""Places for the source files and tables of a home: this machine, or a bucket."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from botocore.exceptions import ClientError

from tests.servers.buckets import Bucket

_SECRET = "bucket_keys"  # noqa: S105 - A name and no password.
_TAKEN = "PreconditionFailed"


class Place(Protocol):
    """Source files and tables; a location is the catalog's location of a table."""

    @property
    def warehouse(self) -> str:
        """The folder for new tables; empty for the folder in the home."""
        ...

    @property
    def secret(self) -> str:
        """The secret of the warehouse; empty if none is needed."""
        ...

    @property
    def preparation(self) -> str:
        """The statement that creates the secret; empty if none is needed."""
        ...

    @property
    def arguments(self) -> str:
        """The arguments of FILES."""
        ...

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options with which deltalake opens tables here."""
        ...

    def source(self, name: str) -> str:
        """Return the name of a source file in Penstock."""
        ...

    def write_source(self, name: str, content: str) -> None:
        """Write a source file."""
        ...

    def names(self, location: str) -> list[str]:
        """Return the files below a location, as names relative to the location."""
        ...

    def read(self, location: str, name: str) -> bytes:
        """Read a file below a location."""
        ...

    def write_new(self, location: str, name: str, content: bytes) -> bool:
        """Create a file; return False if a file of that name exists."""
        ...


@dataclass(frozen=True)
class LocalPlace:
    """Folders of this machine; the tables are in the home."""

    folder: Path

    warehouse = ""
    secret = ""
    preparation = ""
    storage_options = None

    @property
    def arguments(self) -> str:
        return f"'uri' = 'file://{self.folder}/*.json', 'format' = 'json'"

    def source(self, name: str) -> str:
        return str(self.folder / name)

    def write_source(self, name: str, content: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(content)

    def names(self, location: str) -> list[str]:
        root = Path(location)
        return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]

    def read(self, location: str, name: str) -> bytes:
        return (Path(location) / name).read_bytes()

    def write_new(self, location: str, name: str, content: bytes) -> bool:
        try:
            with (Path(location) / name).open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class BucketPlace:
    """A part of a bucket: source files below one prefix, the warehouse below another."""

    bucket: Bucket
    # Ends with a slash; empty for a bucket of its own.
    prefix: str = ""

    secret = _SECRET

    @property
    def warehouse(self) -> str:
        return self.bucket.uri(f"{self.prefix}warehouse")

    @property
    def preparation(self) -> str:
        return self.bucket.create_secret(_SECRET)

    @property
    def arguments(self) -> str:
        """The arguments of FILES, with one literal key and one reference to the secret."""
        bucket = self.bucket
        return (
            f"'uri' = '{bucket.uri(self.source('*.json'))}', 'format' = 'json', "
            f"'s3.endpoint' = '{bucket.endpoint}', 's3.region' = '{bucket.region}', "
            f"'s3.access_key' = '{bucket.access_key}', 's3.secret_key' = SECRET '{_SECRET}'"
        )

    @property
    def storage_options(self) -> dict[str, str]:
        return self.bucket.storage_options

    def source(self, name: str) -> str:
        return f"{self.prefix}in/{name}"

    def write_source(self, name: str, content: str) -> None:
        self.bucket.put(self.source(name), content.encode())

    def names(self, location: str) -> list[str]:
        prefix = self._key(location, "")
        return [key.removeprefix(prefix) for key in self.bucket.keys(prefix)]

    def read(self, location: str, name: str) -> bytes:
        return self.bucket.get(self._key(location, name))

    def write_new(self, location: str, name: str, content: bytes) -> bool:
        bucket, key = self.bucket, self._key(location, name)
        try:
            bucket.client.put_object(Bucket=bucket.name, Key=key, Body=content, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] != _TAKEN:
                raise
            return False
        return True

    def _key(self, location: str, name: str) -> str:
        return f"{location.removeprefix(self.bucket.uri())}/{name}"
