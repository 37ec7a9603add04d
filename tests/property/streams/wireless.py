"""The service behind the product's client, without HTTP: what boto3 would answer."""

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


class WirelessClient:
    """A client of boto3 as far as the product uses it; somebody hears of every request."""

    def __init__(
        self,
        service: Service,
        *,
        now: Callable[[], datetime],
        asked: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._service = service
        self._now = now
        self._asked = asked

    def close(self) -> None:
        """Have nothing to close."""

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = _OPERATIONS[name]

        def ask(**arguments: Any) -> dict[str, Any]:
            self._asked(operation, arguments)
            return self._ask(operation, arguments)

        return ask

    def _ask(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(arguments, default=datetime.timestamp).encode()
        answer = self._service.answer(Request(operation=operation, body=body))
        said: dict[str, Any] = json.loads(answer.body or b"{}")
        if answer.status != 200:
            error = {"Code": said["__type"], "Message": said.get("message", "")}
            told = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": answer.status}}
            raise ClientError(told, operation)
        for record in said.get("Records", ()):
            record["Data"] = base64.b64decode(record["Data"])
        date = format_datetime(self._now().replace(microsecond=0), usegmt=True)
        return said | {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
