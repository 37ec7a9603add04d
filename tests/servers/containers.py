"""One container of an account of Azure, as a test sees it."""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPConnection
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from tests.servers.buckets import StorageServer

_PATIENCE_SECONDS = 30
_VERSION = "2021-12-02"
# The headers between the length and our own that a signature covers, none of which is sent.
_UNUSED_HEADERS = "\n" * 8


class ContainerError(Exception):
    """The server refused a request; the message is what it said."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container with the account and the key that open it."""

    endpoint: str
    name: str
    access_key: str
    secret_key: str

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        ask(self, "PUT", self._path(key), content=content)

    def get(self, key: str) -> bytes:
        """Answer an object's content."""
        return ask(self, "GET", self._path(key))

    def keys(self, prefix: str = "") -> list[str]:
        """Answer the keys of the first page, in the order in which the server lists them."""
        parameters = {"restype": "container", "comp": "list", "prefix": prefix}
        answer = ElementTree.fromstring(  # noqa: S314 - The server is one of ours.
            ask(self, "GET", f"/{self.name}", parameters=parameters).removeprefix(
                b"\xef\xbb\xbf"
            )
        )
        return [found.findtext("Name", "") for found in answer.iter("Blob")]

    def delete(self, key: str) -> None:
        """Remove an object."""
        ask(self, "DELETE", self._path(key))

    def uri(self, path: str = "") -> str:
        """Answer the address of a key or a prefix."""
        return f"az://{self.name}/{path}"

    @property
    def storage_options(self) -> dict[str, str]:
        """What deltalake needs to know to open tables here."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.access_key,
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret_key,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def _path(self, key: str) -> str:
        return f"/{self.name}/{quote(key)}"


def create_container(server: StorageServer) -> Container:
    """Create a container with a new name."""
    container = Container(
        endpoint=server.endpoint,
        name=f"container-{uuid.uuid4().hex[:12]}",
        access_key=server.access_key,
        secret_key=server.secret_key,
    )
    ask(server, "PUT", f"/{container.name}", parameters={"restype": "container"})
    return container


def remove_container(container: Container) -> None:
    """Remove a container with all that is in it."""
    ask(container, "DELETE", f"/{container.name}", parameters={"restype": "container"})


def ask(
    server: StorageServer,
    method: str,
    path: str = "",
    *,
    parameters: Mapping[str, str] | None = None,
    content: bytes = b"",
) -> bytes:
    """Send a signed request below the account and answer the body; paths are quoted."""
    address = urlsplit(server.endpoint)
    target = f"{address.path}{path}"
    parameters = parameters or {}
    sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    if method == "PUT" and not parameters:
        sent["x-ms-blob-type"] = "BlockBlob"
    resource = [f"/{server.access_key}{target}"]
    resource += [f"{name}:{value}" for name, value in sorted(parameters.items())]
    lines = [
        f"{method}\n\n\n{len(content) or ''}\n{_UNUSED_HEADERS}",
        *(f"{name}:{value}\n" for name, value in sorted(sent.items())),
        "\n".join(resource),
    ]
    key = base64.b64decode(server.secret_key)
    digest = hmac.digest(key, "".join(lines).encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    sent["Authorization"] = f"SharedKey {server.access_key}:{signature}"
    query = f"?{urlencode(parameters)}" if parameters else ""
    with closing(HTTPConnection(address.netloc, timeout=_PATIENCE_SECONDS)) as connection:
        connection.request(method, target + query, body=content, headers=sent)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise ContainerError(f"{method} {target}: {answer.status} {body.decode()[:500]}")
    return body
