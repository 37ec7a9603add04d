"""Pass HTTP requests on to another server, and answers back, byte for byte.

Bodies are streamed both ways, of known length or in chunks; clients may keep their connection.
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
# What concerns one connection and not the request; the expectation was met before.
_OWN_TO_A_CONNECTION = {"connection", "keep-alive", "proxy-connection", "expect"}


class Exchange(BaseHTTPRequestHandler):
    """One client's connection and the request that is served on it now."""

    protocol_version = "HTTP/1.1"
    # Short answers in several writes would otherwise wait for the client's acknowledgement.
    disable_nagle_algorithm = True
    server: "Listener"

    @property
    def target(self) -> str:
        """The path and the query, exactly as they came."""
        return self.requestline.split()[1]

    def pause(self, seconds: float) -> None:
        """Wait, at most until the listener ends."""
        self.server.ended.wait(seconds)

    def answer(self, status: int, body: bytes, *, content_type: str) -> None:
        """Answer without asking the server."""
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
        """Pass the request on and the answer back: all, so much of the body, or nothing."""
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
                        self._pass_answer(response, bytes_max)
        finally:
            connection.close()

    def _pass_request(self, connection: http.client.HTTPConnection) -> None:
        connection.putrequest(
            self.command, self.target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in self.headers.items():
            if name.lower() not in _OWN_TO_A_CONNECTION:
                connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()
        try:
            for piece in self._body():
                connection.send(_chunk(piece) if self._chunked() else piece)
            if self._chunked():
                connection.send(_LAST_CHUNK)
        except ConnectionError:
            # The server has answered without reading to the end; the rest is still on its way.
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

    def _pass_answer(self, response: http.client.HTTPResponse, bytes_max: int | None) -> None:
        chunked = "chunked" in (response.getheader("Transfer-Encoding") or "").lower()
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _OWN_TO_A_CONNECTION:
                self.send_header(name, value)
        if (not chunked and response.length is None) or bytes_max is not None:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        for piece in _pieces(response, bytes_max):
            self.wfile.write(_chunk(piece) if chunked else piece)
        if response.length:
            # The server broke off, or the client is not to have the rest.
            self.close_connection = True
        elif chunked and bytes_max is None and self.command != "HEAD":
            self.wfile.write(_LAST_CHUNK)

    def _serve(self) -> None:
        try:
            self.server.serve(self)
        except (OSError, http.client.HTTPException):
            # One of the two sides is gone; the other one learns it in the same way.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - Called by these names.

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: the proxy remembers requests itself."""


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
    """A port that accepts connections until its end, which also ends all of them."""

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
        """Close the port, break every connection, and wait until nobody is served any more."""
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
        """Break this connection too, should the end come meanwhile."""
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
        """Report what went wrong in this process; a client that has gone is nothing wrong."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _break(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
