"""Every statement and every failure, driven with canaries through the installed command."""

import os
import secrets
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import psutil
import pyarrow as pa
from deltalake import write_deltalake

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from penstock.crashpoints import CrashPoint
from penstock.model.schema import quoted_text
from tests.integration.bucket_jobs import QuietHandler, json_lines, serving
from tests.integration.canary import (
    Canaries,
    Keeper,
    Piece,
    process_pieces,
    typed_out_of,
    ui_pieces,
)
from tests.integration.command import COMMAND, PATIENCE_SECONDS, wait_until
from tests.integration.terminal import PROMPT, UP, Terminal
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.child import HOST, bare_environment, free_ports
from tests.servers.moto import MotoServer
from tests.servers.proxy import Answer, FaultProxy, Request, method, slow_down
from tests.servers.seaweedfs import SeaweedServer

ROWS = (1, 2, 3)

# What is compressed could not be searched. Spark tells more than it usually does.
_SETTINGS = """
warehouse = "{warehouse}"
warehouse_secret = "lake"

[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={tmp}"
"spark.log.level" = "INFO"
"spark.ui.enabled" = "true"
"spark.ui.port" = "{port}"
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{events}"
"spark.eventLog.compress" = "false"
"spark.broadcast.compress" = "false"
"spark.shuffle.compress" = "false"
"spark.shuffle.spill.compress" = "false"
"""

_FUNCTIONS = """
from pyspark.sql.functions import udf

@udf("string")
def refuse(text):
    raise ValueError("not this one")
"""

_LENT = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>{access}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{ends_at:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""
_NOT_LENT = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>
<Code>AccessDenied</Code><Message>{words}</Message></Error></ErrorResponse>"""
ROLE = "arn:aws:iam::123456789012:role/loader"
STRANGER = "arn:aws:iam::123456789012:role/stranger"


@dataclass
class Lake:
    """Buckets that canaries open: one checks its keys, the other one takes any."""

    canaries: Canaries
    seaweed: SeaweedServer
    bucket: Bucket
    open_bucket: Bucket
    # In front of the warehouse, of a source that is waited for, and of one that fails.
    warehouse: FaultProxy
    gate: FaultProxy
    faulty: FaultProxy
    sts: str
    opened: threading.Event = field(default_factory=threading.Event)

    def echo(self, status: int = 403) -> Answer:
        """Answer a refusal that repeats the keys, as servers do."""
        told = f"{self.seaweed.access_key} with {self.seaweed.secret_key}"
        body = (
            f'<?xml version="1.0"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>Who is {told}'
            f"</Message><AWSAccessKeyId>{told}</AWSAccessKeyId></Error>"
        )
        return Answer(status=status, body=body.encode())

    def shut(self, _request: Request) -> bool:
        """Hold requests back until the gate is opened; they meet no fault."""
        self.opened.wait(PATIENCE_SECONDS)
        return False


@contextmanager
def open_lake(folder: Path, *, moto: MotoServer, canaries: Canaries) -> Iterator[Lake]:
    """Give buckets with source files, opened by canaries."""
    seaweed = SeaweedServer(
        folder / "seaweed",
        access_key=canaries.key("access key"),
        secret_key=canaries.secret("secret key"),
    )
    seaweed.start()
    bucket, open_bucket = create_bucket(seaweed), create_bucket(moto)
    proxies = [FaultProxy(seaweed.endpoint) for _ in range(3)]
    try:
        for proxy in proxies:
            proxy.up()
        for one in (bucket, open_bucket):
            one.put("in/a.json", json_lines(*ROWS))
        bucket.put("bad/a.json", json_lines(*ROWS) + b'{"id": "x", "note": "bad"}\n')
        with lending(canaries) as sts:
            warehouse, gate, faulty = proxies
            yield Lake(
                canaries=canaries,
                seaweed=seaweed,
                bucket=bucket,
                open_bucket=open_bucket,
                warehouse=warehouse,
                gate=gate,
                faulty=faulty,
                sts=sts,
            )
    finally:
        for proxy in proxies:
            proxy.down()
        bucket.close()
        open_bucket.close()
        seaweed.kill()


@contextmanager
def lending(canaries: Canaries) -> Iterator[str]:
    """Serve the lending of keys to all but one role; give the address."""
    lent = {name: canaries.secret(f"lent {name}") for name in ("secret", "token")}
    lent["access"] = canaries.key("lent access")

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if dict(parse_qsl(asked))["RoleArn"] == STRANGER:
                self.send(403, _NOT_LENT.format(words=str(self.headers)))
            else:
                ends_at = datetime.now(UTC) + timedelta(hours=1)
                self.send(200, _LENT.format(**lent, ends_at=ends_at))

    with serving(Handler) as endpoint:
        yield endpoint
