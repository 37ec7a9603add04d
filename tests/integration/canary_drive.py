"""Every statement and every failure, driven with canaries through the installed command."""

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
from tests.integration.canary_ground import Ground, Prompt, open_prompt
from tests.integration.canary_lake import ROLE
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
_LOOK_SECONDS = 0.3


def drive(ground: Ground) -> dict[str, JobState]:
    """Do everything that can be done with a secret; answer the jobs as a run left them."""
    prepare(ground)
    with ThreadPoolExecutor(3) as beside, open_prompt(ground) as prompt:
        done = [beside.submit(fail, ground, one) for one in slow_statements(ground.lake)]
        done.append(beside.submit(freeze_and_kill, ground))
        type_failures(ground, prompt)
        type_queries(ground, prompt)
        for one in done:
            one.result()
        type_before_a_refusing_warehouse(ground, prompt)
        jobs = run_everything(ground)
        type_changes(ground, prompt)
    look_back(ground)
    lose_the_key(ground)
    damage_the_catalog(ground)
    return jobs


def fail(ground: Ground, failing: Failing) -> None:
    """Run a statement that is refused."""
    ended = ground.run("sql", "--verbose", stdin=failing.sql)
    assert f"error {failing.code}" in ended.text, ended.text


def prepare(ground: Ground) -> None:
    """Make secrets, tables and the jobs whose SELECT needs no Spark, and look at them."""
    lake, canaries = ground.lake, ground.lake.canaries
    warehouse = {"s3.endpoint": lake.warehouse.endpoint, "s3.region": "us-east-1", **lake.keys}
    lake.opened.set()
    ended = ground.sql(
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
        *_plain_jobs(ground),
        "SHOW TABLES",
        "DESCRIBE t",
        "DESCRIBE DETAIL t",
        "SHOW CREATE TABLE t",
        words=("--verbose",),
    )
    lake.opened.clear()
    assert ended.code == 0, ended.text
    (location,) = set(re.findall(r"s3://\S+/names-\w+", ended.text))
    names = pa.table({"id": [1, 2], "name": ["one", "two"]})
    write_deltalake(location, names, mode="append", storage_options=lake.bucket.storage_options)


def _plain_jobs(ground: Ground) -> list[str]:
    lake = ground.lake
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
            **_references("env:LAKE_ACCESS_KEY", f"file:{ground.secret_file}"),
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


def freeze_and_kill(ground: Ground) -> None:
    """Kill a run in the middle of an epoch, whose key is in a variable; its files stay."""
    lake = ground.lake
    home, key = str(ground.keyed), lake.canaries.secret("key in a variable")
    ended = ground.sql(
        f"CREATE SECRET lake ({pairs(lake.access)})",
        "CREATE TABLE t (id BIGINT NOT NULL, note STRING)",
        job("killed", insert(lake.source, lake.access)),
        PENSTOCK_HOME=home,
        PENSTOCK_SECRET_KEY=key,
    )
    assert ended.code == 0, ended.text
    running = ground.start(
        "run",
        "--verbose",
        PENSTOCK_HOME=home,
        PENSTOCK_SECRET_KEY=key,
        PENSTOCK_CRASH_AT=f"{CrashPoint.TASK_WRITTEN}:stop",
    )
    wait_until(running.has_stopped)
    running.look()
    running.kill()


def type_failures(ground: Ground, prompt: Prompt) -> None:
    """Type statements that are refused, and open one of them in an editor."""
    lake = ground.lake
    with lake.echoing(lake.refusing, anything):
        for failing in failing_statements(lake):
            prompt.ask(failing.sql, answer=f"error {failing.code}")
    wrong = f"CREATE SECRET edited ({pairs(lake.other_keys('to be edited'))}) oops"
    prompt.ask(wrong, answer="error SYNTAX_ERR")
    opened = prompt.press("\\e\r")
    assert "CREATE SECRET" in opened
    assert "CREATE SECRET edited" not in opened
    prompt.press(CTRL_C)


def type_queries(ground: Ground, prompt: Prompt) -> None:
    """Type what needs Spark."""
    lake = ground.lake
    joined = "SELECT s.id, n.name AS note FROM SRC s LEFT JOIN names n ON s.id = n.id"
    refusing = "SELECT id, refuse(note) AS note FROM SRC"
    functions = {"session.python_udfs": "refusing"}

    def create(name: str, select: str, properties: dict[str, str] | None = None) -> str:
        return job(name, insert(lake.source, lake.access, select=select), properties)

    prompt.ask(create("joined", joined), answer="job joined created")
    prompt.ask(create("refusing", refusing, functions), answer="job refusing created")
    prompt.ask(create("tampered", "SELECT id + 1, note FROM SRC"), answer="created")
    prompt.ask(create("never", "SELECT id, note FROM SRC WHERE id ="), answer="Syntax error")
    prompt.ask(create("never", refusing), answer="error TYPE_ERR")
    prompt.ask("EXPLAIN JOB joined", answer="limit max_interval")
    prompt.ask("SELECT name FROM names WHERE id = 1", answer="1 row, ")


def type_before_a_refusing_warehouse(ground: Ground, prompt: Prompt) -> None:
    """Type what looks into the warehouse while that repeats the keys of whoever looks."""
    lake = ground.lake
    for status in (403, 404):
        with lake.echoing(lake.warehouse, method("GET", path=".parquet"), status=status):
            prompt.ask("SELECT count(*) FROM names", answer="error ")
        with lake.echoing(lake.warehouse, method("GET"), status=status):
            prompt.ask("DESCRIBE DETAIL names", answer="error ")
    with lake.echoing(lake.warehouse, method("PUT")):
        prompt.ask("CREATE TABLE unborn (id INT)", answer="error STORAGE_ERR")
        prompt.ask("PAUSE JOB uncommitted", answer="error ")
    prompt.ask("RESUME JOB uncommitted", answer="job uncommitted resumed")


def run_everything(ground: Ground) -> dict[str, JobState]:
    """Run all jobs, of which some fail, and ask Spark what it knows of them."""
    lake = ground.lake
    tamper(ground)
    ground.sql(f"ALTER SECRET fading ({pairs(lake.other_keys('that has faded'))})")
    with ExitStack() as stack:
        catalog = stack.enter_context(closing(ground.catalog()))
        stack.enter_context(lake.echoing(lake.refusing, method("GET")))
        stack.enter_context(lake.echoing(lake.warehouse, _is_refused_commit))
        running = ground.start("run", "--until-caught-up", "--verbose")
        pending = {*LOADING, *FAILING}
        wait_until(lambda: _settle(pending, catalog) == {"gated"})
        running.look()
        for port in range(ground.port, ground.port + _SPARKS_MAX):
            with suppress(ConnectionRefusedError):
                ground.heard.told_by_spark += ui_pieces(port)
        lake.opened.set()
        wait_until(lambda: not _settle(pending, catalog))
        running.process.send_signal(signal.SIGINT)
        running.wait()
        return {state.name: state for state in catalog.jobs()}


def tamper(ground: Ground) -> None:
    """Let a job believe that its SELECT needs nothing, which no statement can."""
    needed = "'$.definition.query.needed'"
    changed = f"json_set(snapshot, {needed}, json_array())"
    _update(ground, f"jobs SET snapshot = {changed} WHERE name = 'tampered'")


def _is_refused_commit(request: Request) -> bool:
    return request.method == "PUT" and "/refused-" in request.path and "_log/" in request.path


def _settle(pending: set[str], catalog: Catalog) -> set[str]:
    """Take out the jobs that have loaded or failed as they should; answer the others."""
    # Looking takes its time, too, and those who are looked at need it.
    threading.Event().wait(_LOOK_SECONDS)
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


def type_changes(ground: Ground, prompt: Prompt) -> None:
    """Type what changes and ends jobs that have loaded, and look at them."""
    lake = ground.lake
    again = insert(lake.source, lake.access)
    other = insert(lake.source, {**lake.access, **lake.other_keys("of an ALTER")})
    prompt.ask('SELECT error, raw FROM rejects("job" = "lax")', answer="1 row, ")
    prompt.ask("PAUSE JOB literal", answer="job literal paused")
    prompt.ask(f"ALTER JOB literal {other}", answer="job literal altered")
    prompt.ask("EXPLAIN JOB literal", answer="access was refused")
    prompt.ask(f"ALTER JOB literal {again}", answer="job literal altered")
    prompt.ask("RESUME JOB literal", answer="job literal resumed")
    type_stream_changes(ground, prompt)
    prompt.ask("DROP JOB uncommitted", answer="job uncommitted dropped")
    prompt.ask("DROP TABLE refused", answer="table refused dropped")


def type_stream_changes(ground: Ground, prompt: Prompt) -> None:
    """Type what changes and ends a routine load that has loaded."""
    source = pairs(ground.lake.stream_access("of an altered stream"))
    load = "ROUTINE LOAD FOR streamed"
    prompt.ask("SHOW ROUTINE LOAD TASK FOR streamed", answer="0 rows, ")
    prompt.ask(f"PAUSE {load}", answer="routine load streamed paused")
    prompt.ask(f"ALTER {load} FROM KINESIS({source})", answer="routine load streamed altered")
    prompt.ask(f"RESUME {load}", answer="routine load streamed resumed")
    prompt.ask(f"STOP {load}", answer="routine load streamed stopped")
    prompt.ask("SHOW ALL ROUTINE LOAD", answer="1 row, ")


def look_back(ground: Ground) -> None:
    """Look at all that is remembered, in every format, and at the history of the prompt."""
    with ThreadPoolExecutor(2) as beside:
        printed = [beside.submit(print_all, ground, output) for output in get_args(Format)]
        with open_prompt(ground) as prompt:
            prompt.terminal.type(UP * 100)
            # The oldest statement without a secret.
            prompt.terminal.see("CREATE JOB never ON STREAMING")
            prompt.press(CTRL_C)
        with ground.lake.echoing(ground.lake.warehouse, anything):
            ground.run("doctor", "--quick", "--format", "json")
    # Nothing of what is shown here was typed.
    ground.heard.said.append(Piece(place="the history", content=prompt.shown))
    assert [one.result() for one in printed] == [0] * len(printed)


def print_all(ground: Ground, output: str) -> int:
    """Print everything about jobs and secrets; answer the exit code."""
    names = [name for name in FAILING if name != "uncommitted"]
    ended = ground.sql(
        "SHOW JOBS",
        "SHOW SECRETS",
        'SELECT * FROM jobs("type" = "insert")',
        'SELECT * FROM tasks("type" = "insert")',
        *(f"SHOW EVENTS FOR {name}; SHOW EPOCHS FOR {name}" for name in names),
        words=("--format", output),
    )
    return ended.code


def lose_the_key(ground: Ground) -> None:
    """Let the key be lost, then be seen by others, then be another one."""
    lake, key_file = ground.lake, ground.home / KEY_FILE
    key = key_file.read_text()
    late = f"CREATE SECRET late ({pairs(lake.other_keys('without a key'))})"
    lake.canaries.adopt("key in a file", key.strip())
    key_file.unlink()
    lost = ground.sql(late)
    key_file.write_text(key)
    key_file.chmod(0o644)
    open_to_others = ground.run("run", "--until-caught-up", "--timeout", "1s", "--verbose")
    key_file.chmod(0o600)
    key_file.write_text(lake.canaries.secret("other key"))
    changed = ground.sql("EXPLAIN JOB literal")
    examined = ground.run("doctor", "--quick")
    key_file.write_text(key)
    assert "does not exist" in lost.text
    assert "may be read by others" in open_to_others.text
    assert "a secret was sealed with the key" in changed.text
    assert "sealed with the key" in examined.text


def damage_the_catalog(ground: Ground) -> None:
    """Let what was sealed be cut off, and what was written down be unreadable."""
    _update(ground, "secrets SET value_by_key = replace(value_by_key, 'A', 'B')")
    cut = ground.sql("EXPLAIN JOB literal", words=("--verbose",))
    _update(ground, "jobs SET snapshot = replace(snapshot, 'definition', 'something')")
    unknown = ground.sql("SHOW JOBS", words=("--verbose",))
    _update(ground, "jobs SET snapshot = substr(snapshot, 10)")
    unreadable = ground.sql("SHOW JOBS", words=("--verbose",))
    assert "is damaged or truncated" in cut.text
    assert "error INTERNAL_ERR" in unknown.text
    assert "Traceback" in unreadable.text, unreadable.text


def _update(ground: Ground, what: str) -> None:
    with closing(sqlite3.connect(ground.home / "catalog.db")) as database, database:
        database.execute(f"UPDATE {what}")
