"""Buckets that are accessed with canaries: one checks its keys, the other accepts any keys."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl

from tests.integration.bucket_jobs import QuietHandler, json_lines, serving
from tests.integration.canary import Canaries
from tests.integration.command import TIMEOUT_SECONDS
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, kinesis_client, new_stream
from tests.servers.moto import MotoServer
from tests.servers.proxy import FaultProxy, Request, Respond, When, slow_down
from tests.servers.seaweedfs import SeaweedServer

ROWS = (1, 2, 3)
ROLE = "arn:aws:iam::123456789012:role/loader"
STRANGER = "arn:aws:iam::123456789012:role/stranger"

_ALWAYS = 10**6
_STS_RESPONSE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>{access}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{ends_at:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""
_STS_REFUSAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>
<Code>AccessDenied</Code><Message>{words}</Message></Error></ErrorResponse>"""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """An access key, a secret key and perhaps a session token."""

    access: str
    secret: str
    token: str = ""

    @property
    def options(self) -> dict[str, str]:
        """The keys as options of a source or a secret."""
        keys = {"s3.access_key": self.access, "s3.secret_key": self.secret}
        return keys | ({"s3.session_token": self.token} if self.token else {})


@dataclass
class Lake:
    """Two buckets with their source files, and the servers and proxies around them."""

    canaries: Canaries
    bucket: Bucket
    open_bucket: Bucket
    # Credentials of an assumed role, and credentials in the environment.
    assumed: Keys
    found: Keys
    sts: str
    # Proxies of the warehouse, of a blocking source, of a refusing source and of a slow source.
    warehouse: FaultProxy
    gate: FaultProxy
    refusing: FaultProxy
    slow: FaultProxy
    # A stream that accepts any keys, and its address.
    stream: str
    kinesis: str
    opened: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.slow.inject(slow_down(), times=_ALWAYS)
        self.gate.inject(slow_down(), when=self._hold, times=_ALWAYS)

    def _hold(self, _request: Request) -> bool:
        """Block a request while the gate is closed; inject no fault."""
        self.opened.wait(TIMEOUT_SECONDS)
        return False

    @property
    def source(self) -> str:
        """The source files in the bucket that checks keys."""
        return self.bucket.uri("in/*.json")

    @property
    def keys(self) -> dict[str, str]:
        """The only keys that this bucket accepts."""
        return Keys(access=self.bucket.access_key, secret=self.bucket.secret_key).options

    @property
    def access(self) -> dict[str, str]:
        """All options to access this bucket."""
        return {"s3.endpoint": self.bucket.endpoint, **self.keys}

    def stream_access(self, name: str) -> dict[str, str]:
        """Return all options to access the stream, with new keys."""
        keys = new_keys(self.canaries, name)
        return {
            "aws.region": REGION,
            "kinesis_stream": self.stream,
            "aws.endpoint": self.kinesis,
            "aws.access_key": keys.access,
            "aws.secret_key": keys.secret,
            "property.kinesis_default_pos": "TRIM_HORIZON",
        }

    def other_keys(self, name: str) -> dict[str, str]:
        """Return new keys, which only the bucket without key checks accepts."""
        return new_keys(self.canaries, name).options

    @contextmanager
    def echoing(self, proxy: FaultProxy, when: When, *, status: int = 403) -> Iterator[None]:
        """Refuse requests inside the block with an error that repeats all keys."""
        all_keys = (*self.keys.values(), *self.assumed.options.values(), self.found.access)
        repeated = " ".join(all_keys)
        body = (
            f'<?xml version="1.0"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>{repeated}'
            f"</Message><AWSAccessKeyId>{repeated}</AWSAccessKeyId></Error>"
        )
        proxy.inject(Respond(status=status, body=body.encode()), when=when, times=_ALWAYS)
        try:
            yield
        finally:
            proxy.clear_faults()


def new_keys(canaries: Canaries, name: str) -> Keys:
    """Return keys that are canaries."""
    return Keys(
        access=canaries.key(f"access key {name}"), secret=canaries.secret(f"secret key {name}")
    )


@contextmanager
def open_lake(folder: Path, *, moto: MotoServer, canaries: Canaries) -> Iterator[Lake]:
    """Yield buckets with source files; the gate is closed."""
    keys = new_keys(canaries, "of the bucket")
    assumed = Keys(
        access=canaries.key("assumed access key"),
        secret=canaries.secret("assumed secret key"),
        token=canaries.secret("assumed token", joints="/+="),
    )
    with ExitStack() as stack:
        seaweed = SeaweedServer(folder, access_key=keys.access, secret_key=keys.secret)
        stack.callback(seaweed.kill)
        seaweed.start()
        bucket, open_bucket = create_bucket(seaweed), create_bucket(moto)
        stack.callback(bucket.close)
        stack.callback(open_bucket.close)
        for one in (bucket, open_bucket):
            one.put("in/a.json", json_lines(*ROWS))
        bucket.put("bad/a.json", json_lines(*ROWS) + b'{"id": "x", "note": "bad"}\n')
        warehouse, gate, refusing, slow = (
            stack.enter_context(_proxy(seaweed.endpoint)) for _ in range(4)
        )
        kinesis = stack.enter_context(KinesisServer())
        stream = new_stream(stack.enter_context(kinesis_client(kinesis.endpoint)))
        stream.put(json_lines(*ROWS))
        stream.put(b"no record")
        lake = Lake(
            canaries=canaries,
            bucket=bucket,
            open_bucket=open_bucket,
            assumed=assumed,
            found=new_keys(canaries, "in the environment"),
            sts=stack.enter_context(_sts_server(assumed)),
            warehouse=warehouse,
            gate=gate,
            refusing=refusing,
            slow=slow,
            stream=stream.name,
            kinesis=kinesis.endpoint,
        )
        stack.callback(lake.opened.set)
        yield lake


@contextmanager
def _proxy(upstream: str) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream)
    proxy.up()
    try:
        yield proxy
    finally:
        proxy.down()


@contextmanager
def _sts_server(keys: Keys) -> Iterator[str]:
    """Serve AssumeRole for all roles but one, whose refusal repeats the request's signature."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 - Called by this name.
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if dict(parse_qsl(form))["RoleArn"] == STRANGER:
                self.send(403, _STS_REFUSAL.format(words=self.headers["Authorization"]))
            else:
                ends_at = datetime.now(UTC) + timedelta(hours=1)
                self.send(200, _STS_RESPONSE.format(**vars(keys), ends_at=ends_at))

    with serving(Handler) as endpoint:
        yield endpoint
