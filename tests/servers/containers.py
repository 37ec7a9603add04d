"""One container of an Azure account, for tests."""

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

_TIMEOUT_SECONDS = 30
_VERSION = "2021-12-02"
# Headers that are part of a signature but are never sent.
_UNUSED_HEADERS = "\n" * 8


class ContainerError(Exception):
    """The server refused a request; the message is the server's message."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container with its account and key."""

    endpoint: str
    name: str
    access_key: str
    secret_key: str

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        send_request(self, "PUT", self._path(key), content=content)

    def get(self, key: str) -> bytes:
        """Return an object's content."""
        return send_request(self, "GET", self._path(key))

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of the first page, in the order of the server's listing."""
        parameters = {"restype": "container", "comp": "list", "prefix": prefix}
        response = ElementTree.fromstring(  # noqa: S314 - The server is one of ours.
            send_request(self, "GET", f"/{self.name}", parameters=parameters).removeprefix(
                b"\xef\xbb\xbf"
            )
        )
        return [found.findtext("Name", "") for found in response.iter("Blob")]

    def delete(self, key: str) -> None:
        """Delete an object."""
        send_request(self, "DELETE", self._path(key))

    def uri(self, path: str = "") -> str:
        """Return the URI of a key or a prefix."""
        return f"az://{self.name}/{path}"

    @property
    def storage_options(self) -> dict[str, str]:
        """The options of deltalake to open tables here."""
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
    send_request(server, "PUT", f"/{container.name}", parameters={"restype": "container"})
    return container


def remove_container(container: Container) -> None:
    """Delete a container with all its objects."""
    send_request(container, "DELETE", f"/{container.name}", parameters={"restype": "container"})


def send_request(
    server: StorageServer,
    method: str,
    path: str = "",
    *,
    parameters: Mapping[str, str] | None = None,
    content: bytes = b"",
) -> bytes:
    """Send a signed request for a path in the account; return the body. Paths are quoted."""
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
    with closing(HTTPConnection(address.netloc, timeout=_TIMEOUT_SECONDS)) as connection:
        connection.request(method, target + query, body=content, headers=sent)
        response = connection.getresponse()
        body = response.read()
    if response.status >= HTTPStatus.BAD_REQUEST:
        raise ContainerError(f"{method} {target}: {response.status} {body.decode()[:500]}")
    return body
