"""Google Cloud Storage on moto: translates the requests of clients that differ from S3.

Google's XML API equals S3's except for two points. Requests are authenticated by a token that a
service account signs. The condition that a key is free is written differently. This server
checks tokens; moto itself accepts any client.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from http import HTTPStatus
from urllib.parse import quote, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.servers.buckets import Bucket
from tests.servers.child import HOST, free_ports
from tests.servers.forwarding import Exchange, Listener

_EMAIL = "loader@project.iam.gserviceaccount.com"
_ANY_SIGNATURE = (
    "AWS4-HMAC-SHA256 Credential=ANYBODY/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
_REFUSAL = b"<?xml version='1.0'?><Error><Code>AuthenticationRequired</Code></Error>"


@cache
def account_key() -> rsa.RSAPrivateKey:
    """Return the key of the service account; generated once, because generation is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class GoogleServer:
    """A server on a free port that forwards requests of one service account to moto."""

    upstream: str
    key: rsa.RSAPrivateKey = field(default_factory=account_key, repr=False)

    def __post_init__(self) -> None:
        (self._port,) = free_ports(1)

    @property
    def endpoint(self) -> str:
        """Address for the service account."""
        return f"http://{HOST}:{self._port}"

    @contextmanager
    def serving(self) -> Iterator["GoogleServer"]:
        """Serve inside the block."""
        listener = Listener(self._port, serve=self._serve)
        try:
            yield self
        finally:
            listener.end()

    def _serve(self, exchange: Exchange) -> None:
        if not self._signed(exchange.headers.get("Authorization", "")):
            exchange.respond(HTTPStatus.UNAUTHORIZED, _REFUSAL, content_type="application/xml")
            return
        path, mark, query = exchange.target.partition("?")
        # moto does not find a bucket whose name is quoted more than necessary.
        target = quote(unquote(path), safe="/-_.~") + mark + query
        exchange.requestline = f"{exchange.command} {target} HTTP/1.1"
        del exchange.headers["Authorization"]
        exchange.headers["Authorization"] = _ANY_SIGNATURE
        if exchange.headers.get("x-goog-if-generation-match") == "0":
            exchange.headers["If-None-Match"] = "*"
        exchange.forward(self.upstream)

    def _signed(self, authorization: str) -> bool:
        """Return whether a token is signed by the service account."""
        token = authorization.removeprefix("Bearer ")
        content, _, signature = token.rpartition(".")
        try:
            self._public.verify(
                _decoded(signature), content.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return False
        claims = json.loads(_decoded(content.rpartition(".")[2]))
        return bool(claims["iss"] == _EMAIL)

    @cached_property
    def _public(self) -> rsa.RSAPublicKey:
        return self.key.public_key()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def service_account(endpoint: str, key: rsa.RSAPrivateKey) -> str:
    """Return the key file of a service account in Google's format, for our server."""
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return json.dumps(
        {
            "type": "service_account",
            "client_email": _EMAIL,
            "private_key_id": "one",
            "private_key": private.decode(),
            "gcs_base_url": endpoint,
        }
    )


@dataclass(frozen=True, kw_only=True)
class GoogleBucket:
    """A bucket for a service account, and the same bucket on moto."""

    server: GoogleServer
    direct: Bucket

    @property
    def name(self) -> str:
        """The name, which is the same on both sides."""
        return self.direct.name

    @property
    def account(self) -> str:
        """The key file to access the bucket."""
        return service_account(self.server.endpoint, self.server.key)

    def uri(self, path: str = "") -> str:
        """Return the URI of a key or a prefix."""
        return f"gs://{self.name}/{path}"
