"""HTTP server on 127.0.0.1 for the JSON 1.1 protocol of AWS and control requests."""

import json
import re
import sys
import threading
import uuid
from datetime import timedelta
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers.kinesis.control import CONTROL_PATH, ControlError, execute_command
from tests.servers.kinesis.service import Request, Response, Service

HOST = "127.0.0.1"

_AMAZON_JSON = "application/x-amz-json-1.1"
_BODY_BYTES_MAX = 64 * 1024 * 1024
_KEY = re.compile(r"Credential=([^/,\s]+)/")


class KinesisHttpServer(ThreadingHTTPServer):
    """HTTP server with one thread per connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, service: Service, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.service = service
        self.never = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that closed their connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def endpoint(self) -> str:
        """The endpoint URL for clients."""
        return f"http://{HOST}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: KinesisHttpServer

    def do_POST(self) -> None:
        """Send the response to a request."""
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= _BODY_BYTES_MAX:
            self.close_connection = True
            self._send(
                Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body=b""), _AMAZON_JSON
            )
            return
        body = self.rfile.read(length)
        if self.path == CONTROL_PATH:
            self._send(self._control(body), "application/json")
        else:
            self._send(self._kinesis(body), _AMAZON_JSON)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date header by the clock of the service, which tests can move."""
        now = self.server.service.state.now_ms() / 1000
        return formatdate(now if timestamp is None else timestamp, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - As inherited.
        """Log nothing; tests read the request log of the service."""

    def _kinesis(self, body: bytes) -> Response:
        service, headers = self.server.service, self.headers
        operation = (headers.get("X-Amz-Target") or "").rpartition(".")[2]
        key = _KEY.search(headers.get("Authorization") or "")
        if latency_ms := service.latency_ms(operation):
            clock = service.state.clock
            clock.wait(self.server.never, timedelta(milliseconds=latency_ms))
        return service.handle(
            Request(
                operation=operation,
                body=body,
                access_key_id=key[1] if key else "",
                session_token=headers.get("X-Amz-Security-Token") or "",
            )
        )

    def _control(self, body: bytes) -> Response:
        try:
            result = execute_command(self.server.service, json.loads(body))
        except (ControlError, ValueError, TypeError, KeyError) as error:
            body = json.dumps({"error": str(error)}).encode()
            return Response(status=HTTPStatus.BAD_REQUEST, body=body)
        return Response(status=HTTPStatus.OK, body=json.dumps(result).encode())

    def _send(self, response: Response, content_type: str) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.end_headers()
        self.wfile.write(response.body)
