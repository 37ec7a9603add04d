"""Replacement of the boto3 client that calls the test server without HTTP."""

import base64
import json
from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from botocore.exceptions import ClientError

from tests.servers.kinesis.service import Request, Service

_OPERATIONS = {
    "describe_stream_summary": "DescribeStreamSummary",
    "get_records": "GetRecords",
    "get_shard_iterator": "GetShardIterator",
    "list_shards": "ListShards",
}


class InProcessClient:
    """boto3 client with the operations that the product uses.

    ``on_request`` is called before every request.
    """

    def __init__(
        self,
        service: Service,
        *,
        now: Callable[[], datetime],
        on_request: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._service = service
        self._now = now
        self._on_request = on_request

    def close(self) -> None:
        """Do nothing; there is no connection."""

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = _OPERATIONS[name]

        def call(**arguments: Any) -> dict[str, Any]:
            self._on_request(operation, arguments)
            return self._send(operation, arguments)

        return call

    def _send(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(arguments, default=datetime.timestamp).encode()
        response = self._service.handle(Request(operation=operation, body=body))
        result: dict[str, Any] = json.loads(response.body or b"{}")
        if response.status != 200:
            error = {"Code": result["__type"], "Message": result.get("message", "")}
            details = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": response.status}}
            raise ClientError(details, operation)
        for record in result.get("Records", ()):
            record["Data"] = base64.b64decode(record["Data"])
        date = format_datetime(self._now().replace(microsecond=0), usegmt=True)
        return result | {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
