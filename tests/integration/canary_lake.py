"""Buckets that canaries open, and statements that hold the canaries."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl

from penstock.model.schema import quoted_text
from tests.integration.bucket_jobs import QuietHandler, json_lines, serving
from tests.integration.canary import Canaries
from tests.integration.command import PATIENCE_SECONDS
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.child import HOST, free_ports
from tests.servers.moto import MotoServer
from tests.servers.proxy import Answer, FaultProxy, Request, When
from tests.servers.seaweedfs import SeaweedServer

ROWS = (1, 2, 3)
ROLE = "arn:aws:iam::123456789012:role/loader"
STRANGER = "arn:aws:iam::123456789012:role/stranger"

_LENT = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>{access}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{ends_at:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""
_NOT_LENT = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>
<Code>AccessDenied</Code><Message>{words}</Message></Error></ErrorResponse>"""

Options = Mapping[str, str]


@dataclass
class Lake:
    """Two buckets with source files: one checks its keys, the other one takes any."""

    canaries: Canaries
    seaweed: SeaweedServer
    bucket: Bucket
    open_bucket: Bucket
    # In front of the warehouse, of a source that must be waited for, and of ones that fail.
    warehouse: FaultProxy
    gate: FaultProxy
    faulty: FaultProxy
    slow: FaultProxy
    sts: str
    opened: threading.Event = field(default_factory=threading.Event)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the bucket that checks them."""
        return {
            "s3.access_key": self.seaweed.access_key,
            "s3.secret_key": self.seaweed.secret_key,
        }

    @property
    def access(self) -> dict[str, str]:
        """All that opens the bucket that checks its keys."""
        return {"s3.endpoint": self.seaweed.endpoint, **self.keys}

    def other_keys(self, name: str) -> dict[str, str]:
        """Answer keys that nobody knows; the bucket that takes any takes them, too."""
        return {
            "s3.access_key": self.canaries.key(f"access key, {name}"),
            "s3.secret_key": self.canaries.secret(f"secret key, {name}"),
        }

    def any_access(self, name: str, **more: str) -> dict[str, str]:
        """Answer what opens the bucket that takes any keys."""
        endpoint = {"s3.endpoint": self.open_bucket.endpoint}
        return {**endpoint, **self.other_keys(name), **more}

    def echo(self, status: int = 403) -> Answer:
        """Answer a refusal that repeats the keys, as servers do."""
        told = f"{self.seaweed.access_key} with {self.seaweed.secret_key}"
        body = (
            f'<?xml version="1.0"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>Who is '
            f"{told}?</Message><AWSAccessKeyId>{told}</AWSAccessKeyId></Error>"
        )
        return Answer(status=status, body=body.encode())

    @contextmanager
    def refusing(self, status: int, *, when: When) -> Iterator[None]:
        """Let the warehouse refuse some requests inside the block, with the keys repeated."""
        self.warehouse.inject(self.echo(status), when=when, times=10**6)
        try:
            yield
        finally:
            self.warehouse.heal()

    def hold(self, _request: Request) -> bool:
        """Hold a request back until the gate is opened; it meets no fault."""
        self.opened.wait(PATIENCE_SECONDS)
        return False


@contextmanager
def open_lake(folder: Path, *, moto: MotoServer, canaries: Canaries) -> Iterator[Lake]:
    """Give buckets with source files."""
    seaweed = SeaweedServer(
        folder / "seaweed",
        access_key=canaries.key("access key"),
        secret_key=canaries.secret("secret key"),
    )
    seaweed.start()
    bucket, open_bucket = create_bucket(seaweed), create_bucket(moto)
    warehouse, gate, faulty, slow = proxies = [FaultProxy(seaweed.endpoint) for _ in range(4)]
    try:
        for proxy in proxies:
            proxy.up()
        for one in (bucket, open_bucket):
            one.put("in/a.json", json_lines(*ROWS))
        bucket.put("bad/a.json", json_lines(*ROWS) + b'{"id": "x", "note": "bad"}\n')
        with _lending(canaries) as sts:
            yield Lake(
                canaries=canaries,
                seaweed=seaweed,
                bucket=bucket,
                open_bucket=open_bucket,
                warehouse=warehouse,
                gate=gate,
                faulty=faulty,
                slow=slow,
                sts=sts,
            )
    finally:
        for proxy in proxies:
            proxy.down()
        bucket.close()
        open_bucket.close()
        seaweed.kill()


@contextmanager
def _lending(canaries: Canaries) -> Iterator[str]:
    """Serve the lending of keys to all roles but one, whom it tells what it was asked."""
    lent = {name: canaries.secret(f"lent {name}") for name in ("secret", "token")}
    lent["access"] = canaries.key("lent access")

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 - Called by this name.
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if dict(parse_qsl(asked))["RoleArn"] == STRANGER:
                self.send(403, _NOT_LENT.format(words=self.headers["Authorization"]))
            else:
                ends_at = datetime.now(UTC) + timedelta(hours=1)
                self.send(200, _LENT.format(**lent, ends_at=ends_at))

    with serving(Handler) as endpoint:
        yield endpoint


def pairs(options: Options) -> str:
    """Write options as SQL; a reference that begins with SECRET is none of a text."""
    return ", ".join(
        f"'{key}' = {value if value.startswith('SECRET ') else quoted_text(value)}"
        for key, value in options.items()
    )


def insert(
    uri: str, options: Options, *, table: str = "t", select: str = "SELECT id, note FROM SRC"
) -> str:
    """Write the INSERT of a job; SRC is its source."""
    call = f"S3({pairs({'uri': uri, 'format': 'json', **options})})"
    return f"INSERT INTO {table} {select.replace('SRC', call)}"


def job(name: str, inserted: str, **properties: str) -> str:
    """Write a CREATE JOB; in the names of properties, __ stands for a dot."""
    given = {key.replace("__", "."): value for key, value in properties.items()}
    clause = f" PROPERTIES({pairs(given)})" if given else ""
    return f"CREATE JOB {name}{clause} ON STREAMING DO {inserted}"


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A statement that is refused, and how."""

    sql: str
    code: str


def failing_statements(lake: Lake) -> list[Failing]:
    """Answer statements that fail while, or before, or after they use a canary."""
    canaries = lake.canaries
    bucket = lake.bucket
    source = bucket.uri("in/*.json")

    def value(name: str, joints: str = "/+") -> str:
        return quoted_text(canaries.secret(name, joints=joints))

    def on(options: Options, uri: str = source) -> str:
        return job("never", insert(uri, options))

    def cut(name: str, old: str, new: str) -> str:
        return on({**lake.access, **lake.other_keys(name)}).replace(old, new)

    syntax = [
        f"CREATE SECRET s (s3.secret_key {value('before =')})",
        f"CREATE SECRET s (s3.secret_key == {value('behind ==')})",
        f"CREATE SECRET s (s3.secret_key = {value('before a word')} oops)",
        f"CREATE SECRET s (s3.secret_key = {value('in an open list')}",
        f"CREATE SECRET s s3.secret_key = {value('without a list')}",
        f"CREATE SECRET s ({value('instead of a key')})",
        f"CREATE SECRET s (s3.secret_key = {canaries.secret('unquoted')})",
        f"CREATE SECRET s (s3.secret_key = 'x', s3.secret_key = {value('given twice')})",
        f"CREAT SECRET s (s3.secret_key = {value('misspelt statement')})",
        f"SHOW JOBS; CREATE SECRET s (a = {value('between others')}); SHOW NONSENSE",
        cut("misspelt JOB", "CREATE JOB", "CREATE JOBB"),
        cut("misspelt ON", "ON STREAMING", "ON STREAMIN"),
        cut("misspelt function", "FROM S3(", "FROM S4("),
        cut("colon", "'s3.secret_key' =", "'s3.secret_key' :"),
        cut("no equals", "'s3.secret_key' =", "'s3.secret_key'"),
        cut("comma", "'s3.secret_key' =", "'s3.secret_key' = ,"),
        on(lake.other_keys("before another")) + "; SHOW NONSENSE",
        f"EXPLAIN CREATE JOB never {on(lake.other_keys('explained'))}",
    ]
    unsupported = [
        f"SET s3.secret_key = {value('of a session')}",
        f"SELECT * FROM S3('s3.secret_key' = {value('of a SELECT')})",  # noqa: S608 - Our own.
        insert(source, lake.other_keys("inserted")),
    ]
    options = [
        on({**lake.access, "s3.regoin": "x", **lake.other_keys("beside an unknown option")}),
        on({"s3.endpoint": lake.seaweed.endpoint, "s3.secret_key": canaries.key("alone")}),
        on({"s3.access_key": canaries.key("access alone"), "s3.endpoint": "http://x"}),
        on({"s3.session_token": canaries.key("token alone")}),
        on({**lake.any_access("not of an ARN"), "s3.role_arn": "loader"}),
        on({**lake.other_keys("beside another scheme"), "s3.endpoint": "ftp://host"}),
        on({**lake.access, "max_file": "x", "s3.secretkey": canaries.key("misspelt key")}),
        job("never", insert(source, lake.access), s3__secret_key=canaries.key("property")),
    ]
    missing = [
        on({**lake.access, "s3.secret_key": "SECRET 'nobody'"}),
        on({**lake.access, "s3.secret_key": "env:NOT_SET"}),
        on({**lake.access, "s3.secret_key": "file:/not/there"}),
        job("never", insert(source, lake.other_keys("no table"), table="nowhere")),
        f"ALTER SECRET nobody (a = {value('of nobody')})",
        f"ALTER JOB nobody {insert(source, lake.other_keys('of no job'))}",
    ]
    remote = [
        on({**lake.access, **lake.other_keys("refused")}),
        on({**lake.access, "s3.secret_key": canaries.secret("wrong secret")}),
        on({**lake.any_access("stranger"), "s3.role_arn": STRANGER}),
        on({**lake.access, "s3.endpoint": lake.faulty.endpoint}),
        on(lake.access, "s3://there-is-no-such-bucket/in/"),
    ]
    return [
        *(Failing(sql=sql, code="SYNTAX_ERR") for sql in syntax),
        *(Failing(sql=sql, code="NOT_SUPPORTED_ERR") for sql in unsupported),
        *(Failing(sql=sql, code="OPTION_ERR") for sql in options),
        *(Failing(sql=sql, code="META_NOT_FOUND_ERR") for sql in missing),
        *(Failing(sql=sql, code="GET_REMOTE_DATA_ERROR") for sql in remote),
        Failing(
            sql=f"CREATE SECRET lake (a = {value('name is taken')})", code="ALREADY_EXISTS_ERR"
        ),
        Failing(sql="DROP SECRET lake", code="STATE_ERR"),
    ]


def slow_statements(lake: Lake) -> list[Failing]:
    """Answer statements that fail when all has been tried for a while."""
    (nobody,) = free_ports(1)
    source = lake.bucket.uri("in/*.json")
    return [
        Failing(
            sql=job("never", insert(source, {**lake.access, "s3.endpoint": endpoint})),
            code="GET_REMOTE_DATA_ERROR",
        )
        for endpoint in (f"http://{HOST}:{nobody}", lake.slow.endpoint)
    ]
