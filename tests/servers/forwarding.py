"""Forward HTTP requests to another server, and its responses back, byte for byte.

Bodies are streamed both ways, with a known length or in chunks. Clients can reuse connections.
"""

import http.client
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.servers.child import HOST

_UPSTREAM_SECONDS = 60
_POLL_SECONDS = 0.02
_PIECE_BYTES = 64 * 1024
# Headers of one connection, not of the request. "Expect" was already handled.
_CONNECTION_HEADERS = {"connection", "keep-alive", "proxy-connection", "expect"}


class Exchange(BaseHTTPRequestHandler):
    """One client connection and the request that is currently served on it."""

    protocol_version = "HTTP/1.1"
    # Otherwise short responses in several writes would wait for the client's acknowledgement.
    disable_nagle_algorithm = True
    server: "Listener"

    @property
    def target(self) -> str:
        """The path and the query, exactly as received."""
        return self.requestline.split()[1]

    def pause(self, seconds: float) -> None:
        """Wait, at most until the listener ends."""
        self.server.ended.wait(seconds)

    def respond(self, status: int, body: bytes, *, content_type: str) -> None:
        """Send a response without forwarding the request."""
        for _ in self._body():
            continue
        self.send_response_only(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def forward(
        self, upstream: str, *, bytes_max: int | None = None, lost: bool = False
    ) -> None:
        """Forward the request; return all of the response, a part of its body, or nothing."""
        connection = http.client.HTTPConnection(
            urlsplit(upstream).netloc, timeout=_UPSTREAM_SECONDS
        )
        try:
            connection.connect()
            with self.server.connected(connection.sock):
                self._pass_request(connection)
                with connection.getresponse() as response:
                    if lost:
                        response.read()
                        self.close_connection = True
                    else:
                        self._pass_response(response, bytes_max)
        finally:
            connection.close()

    def _pass_request(self, connection: http.client.HTTPConnection) -> None:
        connection.putrequest(
            self.command, self.target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in self.headers.items():
            if name.lower() not in _CONNECTION_HEADERS:
                connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()
        try:
            for piece in self._body():
                connection.send(_chunk(piece) if self._chunked() else piece)
            if self._chunked():
                connection.send(_LAST_CHUNK)
        except ConnectionError:
            # The server has responded without reading the whole body; the rest is still being
            # sent.
            self.close_connection = True

    def _body(self) -> Iterator[bytes]:
        if self._chunked():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                continue
        else:
            left = int(self.headers.get("Content-Length", "0"))
            while left and (piece := self.rfile.read(min(left, _PIECE_BYTES))):
                left -= len(piece)
                yield piece

    def _chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _pass_response(self, response: http.client.HTTPResponse, bytes_max: int | None) -> None:
        chunked = "chunked" in (response.getheader("Transfer-Encoding") or "").lower()
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _CONNECTION_HEADERS:
                self.send_header(name, value)
        if (not chunked and response.length is None) or bytes_max is not None:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        for piece in _pieces(response, bytes_max):
            self.wfile.write(_chunk(piece) if chunked else piece)
        if response.length:
            # The server closed the connection early, or the body is truncated on purpose.
            self.close_connection = True
        elif chunked and bytes_max is None and self.command != "HEAD":
            self.wfile.write(_LAST_CHUNK)

    def _serve(self) -> None:
        try:
            self.server.serve(self)
        except (OSError, http.client.HTTPException):
            # One side has disconnected; disconnect the other side too.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - Called by these names.

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: the proxy records requests itself."""


_LAST_CHUNK = b"0\r\n\r\n"


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _pieces(response: http.client.HTTPResponse, bytes_max: int | None) -> Iterator[bytes]:
    left = bytes_max
    while left is None or left > 0:
        piece = response.read1(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece


class Listener(ThreadingHTTPServer):
    """A port that accepts connections; its end also closes all connections."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, port: int, *, serve: Callable[[Exchange], None]) -> None:
        self.serve = serve
        self.ended = threading.Event()
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__((HOST, port), Exchange)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_SECONDS,), name=f"listener-{port}"
        )
        self._thread.start()

    def end(self) -> None:
        """Close the port, break every connection, and wait until no request is being served."""
        self.shutdown()
        self._thread.join()
        self.socket.close()
        self.ended.set()
        with self._guard:
            for opened in self._open:
                _break(opened)
        self.server_close()

    @contextmanager
    def connected(self, upstream: socket.socket) -> Iterator[None]:
        """Break this connection too if the listener ends meanwhile."""
        with self._guard:
            self._open.add(upstream)
            if self.ended.is_set():
                _break(upstream)
        try:
            yield
        finally:
            with self._guard:
                self._open.discard(upstream)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of this process; ignore a client that has disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _break(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
