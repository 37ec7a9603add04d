"""Every statement and every failure, run with canaries through the installed command."""

import re
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import get_args

import pyarrow as pa
from deltalake import write_deltalake

from penstock.catalog.catalog import Catalog
from penstock.cli.main import Format
from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from penstock.model.events import DesiredStateChanged
from penstock.model.job import JobState
from penstock.settings.settings import KEY_FILE
from tests.integration.canary import Piece, ui_pieces
from tests.integration.canary_lake import ROLE
from tests.integration.canary_sandbox import Prompt, Sandbox, open_prompt
from tests.integration.canary_statements import (
    Failing,
    failing_statements,
    insert,
    job,
    pairs,
    routine_load,
    slow_statements,
)
from tests.integration.command import wait_until
from tests.integration.terminal import CTRL_C, UP
from tests.servers.proxy import Request, anything, method

LOADING = (
    "gated",
    "joined",
    "lax",
    "literal",
    "outside",
    "referring",
    "role",
    "streamed",
    "token",
)
FAILING = {
    "echoing": Code.GET_REMOTE_DATA_ERROR,
    "fading": Code.GET_REMOTE_DATA_ERROR,
    "refusing": Code.SPARK_ERR,
    "strict": Code.TOO_MANY_FAILURE_ROWS_ERR,
    "tampered": Code.INTERNAL_ERR,
    "uncommitted": Code.TABLE_ERR,
}
_ODD = "&<%'\"\\"
_SPARKS_MAX = 3
_POLL_SECONDS = 0.3


def drive(sandbox: Sandbox) -> dict[str, JobState]:
    """Use secrets in every possible way; return the jobs as the last run left them."""
    prepare(sandbox)
    with ThreadPoolExecutor(3) as beside, open_prompt(sandbox) as prompt:
        done = [beside.submit(fail, sandbox, one) for one in slow_statements(sandbox.lake)]
        done.append(beside.submit(freeze_and_kill, sandbox))
        type_failures(sandbox, prompt)
        type_queries(sandbox, prompt)
        for one in done:
            one.result()
        type_before_a_refusing_warehouse(sandbox, prompt)
        jobs = run_everything(sandbox)
        type_changes(sandbox, prompt)
    show_history(sandbox)
    lose_the_key(sandbox)
    damage_the_catalog(sandbox)
    return jobs


def fail(sandbox: Sandbox, failing: Failing) -> None:
    """Run a statement that must be refused."""
    ended = sandbox.run("sql", "--verbose", stdin=failing.sql)
    assert f"error {failing.code}" in ended.text, ended.text


def prepare(sandbox: Sandbox) -> None:
    """Create secrets, tables and the jobs whose SELECT needs no Spark, and show them."""
    lake, canaries = sandbox.lake, sandbox.lake.canaries
    warehouse = {"s3.endpoint": lake.warehouse.endpoint, "s3.region": "us-east-1", **lake.keys}
    lake.opened.set()
    ended = sandbox.sql(
        f"CREATE SECRET lake ({pairs(warehouse)})",
        f"CREATE SECRET plain ({pairs(lake.keys)})",
        f"CREATE SECRET fading ({pairs(lake.keys)})",
        f"CREATE SECRET shed ({pairs({'password': canaries.secret('shed', joints=_ODD)})})",
        f"ALTER SECRET shed ({pairs({'password': canaries.secret('rotated', joints=_ODD)})})",
        f"CREATE SECRET IF NOT EXISTS shed ({pairs(lake.other_keys('not taken'))})",
        "SHOW SECRETS",
        "DROP SECRET shed",
        "CREATE TABLE t (id BIGINT NOT NULL, note STRING)",
        "CREATE TABLE refused (id BIGINT NOT NULL, note STRING)",
        "CREATE TABLE names (id BIGINT, name STRING)",
        *_plain_jobs(sandbox),
        "SHOW TABLES",
        "DESCRIBE t",
        "DESCRIBE DETAIL t",
        "SHOW CREATE TABLE t",
        "SHOW STREAMING TABLES",
        words=("--verbose",),
    )
    lake.opened.clear()
    assert ended.code == 0, ended.text
    (location,) = set(re.findall(r"s3://\S+/names-\w+", ended.text))
    names = pa.table({"id": [1, 2], "name": ["one", "two"]})
    write_deltalake(location, names, mode="append", storage_options=lake.bucket.storage_options)


def _plain_jobs(sandbox: Sandbox) -> list[str]:
    lake = sandbox.lake
    token = {
        **lake.other_keys("with a token"),
        "s3.session_token": lake.canaries.secret("session token", joints="/+="),
    }
    checking = {"s3.endpoint": lake.bucket.endpoint}
    taking_any = {"s3.endpoint": lake.open_bucket.endpoint}
    elsewhere, bad = lake.open_bucket.uri("in/*.json"), lake.bucket.uri("bad/*.json")
    sources = {
        "literal": lake.access,
        "referring": {**checking, **_references("SECRET 'plain'", "SECRET plain")},
        "outside": {
            **checking,
            **_references("env:LAKE_ACCESS_KEY", f"file:{sandbox.secret_file}"),
        },
        "gated": {**lake.keys, "s3.endpoint": lake.gate.endpoint},
        "echoing": {**lake.keys, "s3.endpoint": lake.refusing.endpoint},
        "fading": {**checking, **_references("SECRET fading", "SECRET fading")},
    }
    role = {**lake.other_keys("of the role's user"), "s3.role_arn": ROLE}
    jobs = [
        *(job(name, insert(lake.source, options)) for name, options in sources.items()),
        job("token", insert(elsewhere, {**taking_any, **token})),
        job("role", insert(elsewhere, {**taking_any, **role})),
        job("strict", insert(bad, lake.access)),
        job("lax", insert(bad, lake.access), {"session.enable_insert_strict": "false"}),
        job("uncommitted", insert(lake.source, lake.access, table="refused")),
    ]
    return [
        *jobs,
        *(f"SHOW CREATE JOB {name}" for name in (*sources, "token", "role")),
        routine_load("streamed", lake.stream_access("of the stream")),
        "SHOW CREATE ROUTINE LOAD FOR streamed",
        "SHOW ROUTINE LOAD",
        "SHOW SHARDS FOR streamed",
    ]


def _references(access: str, secret: str) -> dict[str, str]:
    return {"s3.access_key": access, "s3.secret_key": secret}


def freeze_and_kill(sandbox: Sandbox) -> None:
    """Kill a run during an epoch; its secret key is in a variable, and its files remain."""
    lake = sandbox.lake
    home, key = str(sandbox.keyed), lake.canaries.secret("key in a variable")
    ended = sandbox.sql(
        f"CREATE SECRET lake ({pairs(lake.access)})",
        "CREATE TABLE t (id BIGINT NOT NULL, note STRING)",
        job("killed", insert(lake.source, lake.access)),
        PENSTOCK_HOME=home,
        PENSTOCK_SECRET_KEY=key,
    )
    assert ended.code == 0, ended.text
    running = sandbox.start(
        "run",
        "--verbose",
        PENSTOCK_HOME=home,
        PENSTOCK_SECRET_KEY=key,
        PENSTOCK_CRASH_AT=f"{CrashPoint.TASK_WRITTEN}:stop",
    )
    wait_until(running.has_stopped)
    running.record_command_lines()
    running.kill()


def type_failures(sandbox: Sandbox, prompt: Prompt) -> None:
    """Type statements that are refused, and open one of them in an editor."""
    lake = sandbox.lake
    with lake.echoing(lake.refusing, anything):
        for failing in failing_statements(lake):
            prompt.run_statement(failing.sql, expected=f"error {failing.code}")
    wrong = f"CREATE SECRET edited ({pairs(lake.other_keys('to be edited'))}) oops"
    prompt.run_statement(wrong, expected="error SYNTAX_ERR")
    opened = prompt.press("\\e\r")
    assert "CREATE SECRET" in opened
    assert "CREATE SECRET edited" not in opened
    prompt.press(CTRL_C)


def type_queries(sandbox: Sandbox, prompt: Prompt) -> None:
    """Type statements that need Spark."""
    lake = sandbox.lake
    joined = "SELECT s.id, n.name AS note FROM SRC s LEFT JOIN names n ON s.id = n.id"
    refusing = "SELECT id, refuse(note) AS note FROM SRC"
    functions = {"session.python_udfs": "refusing"}

    def create(name: str, select: str, properties: dict[str, str] | None = None) -> str:
        return job(name, insert(lake.source, lake.access, select=select), properties)

    prompt.run_statement(create("joined", joined), expected="job joined created")
    prompt.run_statement(
        create("refusing", refusing, functions), expected="job refusing created"
    )
    prompt.run_statement(create("tampered", "SELECT id + 1, note FROM SRC"), expected="created")
    prompt.run_statement(
        create("never", "SELECT id, note FROM SRC WHERE id ="), expected="Syntax error"
    )
    prompt.run_statement(create("never", refusing), expected="error TYPE_ERR")
    prompt.run_statement("EXPLAIN JOB joined", expected="limit max_interval")
    prompt.run_statement("SELECT name FROM names WHERE id = 1", expected="1 row, ")


def type_before_a_refusing_warehouse(sandbox: Sandbox, prompt: Prompt) -> None:
    """Type statements that access the warehouse while it repeats all keys in its errors."""
    lake = sandbox.lake
    for status in (403, 404):
        with lake.echoing(lake.warehouse, method("GET", path=".parquet"), status=status):
            prompt.run_statement("SELECT count(*) FROM names", expected="error ")
        with lake.echoing(lake.warehouse, method("GET"), status=status):
            prompt.run_statement("DESCRIBE DETAIL names", expected="error ")
    with lake.echoing(lake.warehouse, method("PUT")):
        prompt.run_statement("CREATE TABLE unborn (id INT)", expected="error STORAGE_ERR")
        prompt.run_statement("PAUSE JOB uncommitted", expected="error ")
    prompt.run_statement("RESUME JOB uncommitted", expected="job uncommitted resumed")


def run_everything(sandbox: Sandbox) -> dict[str, JobState]:
    """Run all jobs, of which some fail, and read the Spark UI."""
    lake = sandbox.lake
    tamper(sandbox)
    sandbox.sql(f"ALTER SECRET fading ({pairs(lake.other_keys('that has faded'))})")
    with ExitStack() as stack:
        catalog = stack.enter_context(closing(sandbox.catalog()))
        stack.enter_context(lake.echoing(lake.refusing, method("GET")))
        stack.enter_context(lake.echoing(lake.warehouse, _is_refused_commit))
        running = sandbox.start("run", "--until-caught-up", "--verbose")
        pending = {*LOADING, *FAILING}
        wait_until(lambda: _settle(pending, catalog) == {"gated"})
        running.record_command_lines()
        for port in range(sandbox.port, sandbox.port + _SPARKS_MAX):
            with suppress(ConnectionRefusedError):
                sandbox.captured.spark_pages += ui_pieces(port)
        lake.opened.set()
        wait_until(lambda: not _settle(pending, catalog))
        running.process.send_signal(signal.SIGINT)
        running.wait()
        return {state.name: state for state in catalog.jobs()}


def tamper(sandbox: Sandbox) -> None:
    """Store that the job's SELECT needs nothing, which no statement can do."""
    needed = "'$.definition.query.needed'"
    changed = f"json_set(snapshot, {needed}, json_array())"
    _update(sandbox, f"jobs SET snapshot = {changed} WHERE name = 'tampered'")


def _is_refused_commit(request: Request) -> bool:
    return request.method == "PUT" and "/refused-" in request.path and "_log/" in request.path


def _settle(pending: set[str], catalog: Catalog) -> set[str]:
    """Remove jobs that have loaded or failed as expected; return the others."""
    # Polling without a pause would slow down the jobs.
    threading.Event().wait(_POLL_SECONDS)
    pending -= {name for name in pending if _settled(catalog.job(name), catalog)}
    return pending


def _settled(state: JobState | None, catalog: Catalog) -> bool:
    assert state is not None
    if state.name in LOADING:
        return state.cumulative.rows_loaded > 0
    reasons = [entry.reason for entry in catalog.ledger(state.id, newest=100)]
    reasons += [
        event.body.reason
        for event in catalog.events(state.id)
        if isinstance(event.body, DesiredStateChanged)
    ]
    return any(reason and reason.code is FAILING[state.name] for reason in reasons)


def type_changes(sandbox: Sandbox, prompt: Prompt) -> None:
    """Type statements that alter and drop jobs which have loaded, and show them."""
    lake = sandbox.lake
    again = insert(lake.source, lake.access)
    other = insert(lake.source, {**lake.access, **lake.other_keys("of an ALTER")})
    prompt.run_statement('SELECT error, raw FROM rejects("job" = "lax")', expected="1 row, ")
    prompt.run_statement("PAUSE JOB literal", expected="job literal paused")
    prompt.run_statement(f"ALTER JOB literal {other}", expected="job literal altered")
    prompt.run_statement("EXPLAIN JOB literal", expected="access was refused")
    prompt.run_statement(f"ALTER JOB literal {again}", expected="job literal altered")
    prompt.run_statement("RESUME JOB literal", expected="job literal resumed")
    type_stream_changes(sandbox, prompt)
    prompt.run_statement("DROP JOB uncommitted", expected="job uncommitted dropped")
    prompt.run_statement("DROP TABLE refused", expected="table refused dropped")


def type_stream_changes(sandbox: Sandbox, prompt: Prompt) -> None:
    """Type statements that alter and stop a routine load which has loaded."""
    source = pairs(sandbox.lake.stream_access("of an altered stream"))
    load = "ROUTINE LOAD FOR streamed"
    prompt.run_statement("SHOW ROUTINE LOAD TASK FOR streamed", expected="0 rows, ")
    prompt.run_statement(f"PAUSE {load}", expected="routine load streamed paused")
    prompt.run_statement(
        f"ALTER {load} FROM KINESIS({source})", expected="routine load streamed altered"
    )
    prompt.run_statement(f"RESUME {load}", expected="routine load streamed resumed")
    prompt.run_statement(f"STOP {load}", expected="routine load streamed stopped")
    prompt.run_statement("SHOW ALL ROUTINE LOAD", expected="1 row, ")


def show_history(sandbox: Sandbox) -> None:
    """Show all stored state in every format, and the history of the prompt."""
    with ThreadPoolExecutor(2) as beside:
        printed = [beside.submit(print_all, sandbox, output) for output in get_args(Format)]
        with open_prompt(sandbox) as prompt:
            prompt.terminal.type(UP * 100)
            # The oldest statement without a secret.
            prompt.terminal.see("CREATE STREAMING TABLE s AS SELECT id FROM STREAM missing")
            prompt.press(CTRL_C)
        with sandbox.lake.echoing(sandbox.lake.warehouse, anything):
            sandbox.run("doctor", "--quick", "--format", "json")
    # The text of the history was not typed in this prompt.
    sandbox.captured.outputs.append(Piece(place="the history", content=prompt.shown))
    assert [one.result() for one in printed] == [0] * len(printed)


def print_all(sandbox: Sandbox, output: str) -> int:
    """Print everything about jobs and secrets; return the exit code."""
    names = [name for name in FAILING if name != "uncommitted"]
    ended = sandbox.sql(
        "SHOW JOBS",
        "SHOW SECRETS",
        'SELECT * FROM jobs("type" = "insert")',
        'SELECT * FROM tasks("type" = "insert")',
        *(f"SHOW EVENTS FOR {name}; SHOW EPOCHS FOR {name}" for name in names),
        words=("--format", output),
    )
    return ended.code


def lose_the_key(sandbox: Sandbox) -> None:
    """Delete the key file, then let others read it, then replace the key."""
    lake, key_file = sandbox.lake, sandbox.home / KEY_FILE
    key = key_file.read_text()
    late = f"CREATE SECRET late ({pairs(lake.other_keys('without a key'))})"
    lake.canaries.adopt("key in a file", key.strip())
    key_file.unlink()
    lost = sandbox.sql(late)
    key_file.write_text(key)
    key_file.chmod(0o644)
    open_to_others = sandbox.run("run", "--until-caught-up", "--timeout", "1s", "--verbose")
    key_file.chmod(0o600)
    key_file.write_text(lake.canaries.secret("other key"))
    changed = sandbox.sql("EXPLAIN JOB literal")
    examined = sandbox.run("doctor", "--quick")
    key_file.write_text(key)
    assert "does not exist" in lost.text
    assert "accessible only to its owner" in open_to_others.text
    assert "a secret was encrypted with the key" in changed.text
    assert "encrypted with key" in examined.text


def damage_the_catalog(sandbox: Sandbox) -> None:
    """Damage the encrypted secrets, then the stored snapshots."""
    _update(sandbox, "secrets SET value_by_key = replace(value_by_key, 'A', 'B')")
    cut = sandbox.sql("EXPLAIN JOB literal", words=("--verbose",))
    _update(sandbox, "jobs SET snapshot = replace(snapshot, 'definition', 'something')")
    unknown = sandbox.sql("SHOW JOBS", words=("--verbose",))
    _update(sandbox, "jobs SET snapshot = substr(snapshot, 10)")
    unreadable = sandbox.sql("SHOW JOBS", words=("--verbose",))
    assert "is damaged or truncated" in cut.text
    assert "error INTERNAL_ERR" in unknown.text
    assert "Traceback" in unreadable.text, unreadable.text


def _update(sandbox: Sandbox, what: str) -> None:
    with closing(sqlite3.connect(sandbox.home / "catalog.db")) as database, database:
        database.execute(f"UPDATE {what}")
