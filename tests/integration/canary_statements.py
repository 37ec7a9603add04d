"""Statements that contain canaries; many of them are invalid."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.model.text import quoted_text
from tests.integration.canary_lake import ROLE, STRANGER, Lake
from tests.servers.child import HOST, free_ports

Options = Mapping[str, str]
_STREAMING = "CREATE STREAMING TABLE s WITH (OPTIONS) AS SELECT id FROM STREAM t"


def pairs(options: Options) -> str:
    """Format options as SQL; a value that starts with SECRET is a reference, not a text."""
    return ", ".join(
        f"'{key}' = {value if value.startswith('SECRET ') else quoted_text(value)}"
        for key, value in options.items()
    )


def insert(
    uri: str, options: Options, *, table: str = "t", select: str = "SELECT id, note FROM SRC"
) -> str:
    """Return the INSERT of a job; SRC is the placeholder of its source."""
    call = f"S3({pairs({'uri': uri, 'format': 'json', **options})})"
    return f"INSERT INTO {table} {select.replace('SRC', call)}"


def job(name: str, inserted: str, properties: Options | None = None) -> str:
    """Return a CREATE JOB."""
    clause = f" PROPERTIES({pairs(properties)})" if properties else ""
    return f"CREATE JOB {name}{clause} ON STREAMING DO {inserted}"


def routine_load(name: str, options: Options, *, table: str = "t") -> str:
    """Return a CREATE ROUTINE LOAD that tolerates bad rows."""
    properties = pairs({"format": "json", "max_error_number": "9"})
    source = f"FROM KINESIS({pairs(options)})"
    return f"CREATE ROUTINE LOAD {name} ON {table} PROPERTIES({properties}) {source}"


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A statement that is refused, and the code of the error."""

    sql: str
    code: str


def failing_statements(lake: Lake) -> list[Failing]:
    """Return statements that are refused; the refusing server must refuse every request."""
    statements_by_code: dict[str, Callable[[Lake], list[str]]] = {
        "SYNTAX_ERR": _unreadable,
        "NOT_SUPPORTED_ERR": _unsupported,
        "OPTION_ERR": _not_allowed,
        "META_NOT_FOUND_ERR": _without_object,
        "GET_REMOTE_DATA_ERROR": _refused_by_servers,
        "ALREADY_EXISTS_ERR": _taken,
        "STATE_ERR": lambda _: ["DROP SECRET lake"],
    }
    return [
        Failing(sql=sql, code=code)
        for code, statements in statements_by_code.items()
        for sql in statements(lake)
    ]


def _on(lake: Lake, options: Options, *, uri: str = "", name: str = "never") -> str:
    return job(name, insert(uri or lake.source, options))


def _value(lake: Lake, name: str) -> str:
    return quoted_text(lake.canaries.secret(name, joints="/'&"))


def _unreadable(lake: Lake) -> list[str]:
    def value(name: str) -> str:
        return _value(lake, name)

    def changed(name: str, old: str, new: str) -> str:
        return _on(lake, {**lake.access, **lake.other_keys(name)}).replace(old, new)

    key = "'s3.secret_key' ="
    return [
        f"CREATE SECRET s (s3.secret_key {value('without =')})",
        f"CREATE SECRET s (s3.secret_key == {value('after ==')})",
        f"CREATE SECRET s (s3.secret_key = {value('before a word')} oops)",
        f"CREATE SECRET s (s3.secret_key = {value('in an open list')}",
        f"CREATE SECRET s s3.secret_key = {value('without a list')}",
        f"CREATE SECRET s ({value('in the place of a key')})",
        f"CREATE SECRET s (s3.secret_key = {lake.canaries.secret('without quotes')})",
        f"CREATE SECRET s (a = 'x', a = {value('given twice')})",
        f"CREATE SECRET s (a = {value('before nothing')}, b = )",
        f"CREAT SECRET s (a = {value('in a misspelt statement')})",
        f"SHOW JOBS; CREATE SECRET s (a = {value('between statements')}); SHOW NONSENSE",
        changed("after CREATE JOBB", "CREATE JOB", "CREATE JOBB"),
        changed("after STREAMIN", "ON STREAMING", "ON STREAMIN"),
        changed("in S4", "FROM S3(", "FROM S4("),
        changed("after a colon", key, "'s3.secret_key' :"),
        changed("after nothing", key, "'s3.secret_key'"),
        changed("after a comma", key, f"{key} ,"),
        changed("of a misspelt key", key, "'s3.secretkey' "),
        changed("in one list of two", "DO INSERT", "PROPERTIES() DO INSERT"),
        _on(lake, lake.other_keys("before another")) + "; SHOW NONSENSE",
        f"EXPLAIN {_on(lake, lake.other_keys('to be explained'))}",
        routine_load("never", lake.stream_access("after STREAM")).replace(
            "ON t", "ON STREAM t"
        ),
        routine_load("never", lake.stream_access("after colons")).replace("' = '", "' : '"),
    ]


def _unsupported(lake: Lake) -> list[str]:
    return [
        f"SET s3.secret_key = {_value(lake, 'of a session')}",
        f"SELECT * FROM S3('s3.secret_key' = {_value(lake, 'of a SELECT')})",  # noqa: S608 - Ours.
        insert(lake.source, lake.other_keys("of an INSERT")),
    ]


def _not_allowed(lake: Lake) -> list[str]:
    canaries = lake.canaries
    password = canaries.key("password in an address")
    endpoint = {"s3.endpoint": lake.bucket.endpoint}
    reserved = {"__secret_key": canaries.key("in metadata")}
    property_ = {"s3.secret_key": canaries.key("as a property")}
    return [
        _STREAMING.replace("OPTIONS", pairs(lake.other_keys("of a stream"))),
        _on(lake, {**lake.access, "s3.regoin": "x"}),
        _on(lake, {**lake.access, "s3.acces_key": canaries.key("of a misspelt option")}),
        _on(lake, {**endpoint, "s3.secret_key": canaries.key("secret key alone")}),
        _on(lake, {**endpoint, "s3.access_key": canaries.key("access key alone")}),
        _on(lake, {**endpoint, "s3.session_token": canaries.key("token alone")}),
        _on(lake, {**lake.other_keys("beside no role"), "s3.role_arn": "loader"}),
        _on(lake, {**lake.other_keys("beside another scheme"), "s3.endpoint": "ftp://host"}),
        _on(lake, {**lake.keys, "s3.endpoint": f"http://user:{password}@{HOST}"}),
        _on(lake, lake.keys, uri=f"s3://user:{password}@bucket/in/"),
        job("never", insert(lake.source, lake.access), property_),
        job("never", insert(lake.source, lake.access), reserved),
        *_streams_not_allowed(lake),
    ]


def _streams_not_allowed(lake: Lake) -> list[str]:
    access = lake.stream_access("of no stream")
    password = lake.canaries.key("password in a stream's address")
    lacking = {key: value for key, value in access.items() if key != "aws.secret_key"}
    return [
        routine_load("never", lacking),
        routine_load("never", {**access, "aws.endpoint": f"http://user:{password}@{HOST}"}),
        routine_load("never", {**access, "aws.secretkey": lake.canaries.key("misspelt")}),
        routine_load("never", {**access, "property.kinesis_default_pos": "somewhere"}),
    ]


def _without_object(lake: Lake) -> list[str]:
    return [
        _on(lake, {**lake.access, "s3.secret_key": "SECRET 'missing'"}),
        _on(lake, {**lake.access, "s3.secret_key": "env:NOT_SET"}),
        _on(lake, {**lake.access, "s3.secret_key": "file:/not/there"}),
        job("never", insert(lake.source, lake.other_keys("of no table"), table="nowhere")),
        f"ALTER SECRET missing (a = {_value(lake, 'of no secret')})",
        f"ALTER JOB missing {insert(lake.source, lake.other_keys('of no job'))}",
        routine_load("never", {**lake.stream_access("of nothing"), "kinesis_stream": "none"}),
        routine_load("never", lake.stream_access("of a stream of no table"), table="nowhere"),
        "CREATE STREAMING TABLE s AS SELECT id FROM STREAM missing",
        "CREATE FLOW f AS INSERT INTO missing BY NAME SELECT id FROM STREAM t",
        "ALTER STREAMING TABLE missing SET ('max_failures' = '2')",
        "REFRESH STREAMING TABLE missing",
        "EXPLAIN STREAMING TABLE missing",
        "SHOW CHECKPOINTS FOR missing",
        "SHOW BACKLOG FOR missing",
        "ALTER JOB missing RESET BACKLOG",
        "ALTER TABLE missing DROP WATERMARK",
    ]


def _refused_by_servers(lake: Lake) -> list[str]:
    refusing = {"s3.endpoint": lake.refusing.endpoint}
    google = f'\n"{lake.canaries.key("as a service account")}"'
    azure = {"s3.access_key": "account", "s3.secret_key": lake.canaries.key("of an account")}
    known, assumed = lake.other_keys("to assume a role"), {"s3.role_arn": ROLE}
    return [
        _on(lake, {**lake.access, **lake.other_keys("that is refused")}),
        _on(lake, {**lake.access, "s3.secret_key": lake.canaries.secret("wrong secret key")}),
        _on(lake, {**lake.other_keys("of a stranger"), "s3.role_arn": STRANGER}),
        _on(lake, {**lake.keys, **refusing}),
        _on(lake, {**known, **assumed, **refusing}),
        _on(lake, refusing),
        _on(lake, lake.access, uri="s3://there-is-no-such-bucket/in/"),
        _on(lake, {"gs.service_account": google}, uri="gs://bucket/in/"),
        _on(lake, {**azure, **refusing}, uri="az://container/in/"),
    ]


def _taken(lake: Lake) -> list[str]:
    return [
        f"CREATE SECRET lake (a = {_value(lake, 'of a name that is taken')})",
        _on(lake, {**lake.access, **lake.other_keys("of another job")}, name="literal"),
    ]


def slow_statements(lake: Lake) -> list[Failing]:
    """Return statements that are refused only after all retries."""
    (port,) = free_ports(1)
    endpoints = (f"http://{HOST}:{port}", lake.slow.endpoint)
    return [
        Failing(
            sql=_on(lake, {**lake.access, "s3.endpoint": endpoint}),
            code="GET_REMOTE_DATA_ERROR",
        )
        for endpoint in endpoints
    ]
