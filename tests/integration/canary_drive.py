"""Every statement and every failure, driven with canaries through the installed command."""

import os
import re
import secrets
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from deltalake import write_deltalake

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from penstock.model.events import Event, WishChanged
from penstock.model.job import JobState
from tests.integration.canary import (
    PASTE_ON,
    Canaries,
    Keeper,
    Piece,
    process_pieces,
    typed_out_of,
    ui_pieces,
)
from tests.integration.canary_lake import (
    ROLE,
    Failing,
    Lake,
    failing_statements,
    insert,
    job,
    pairs,
    slow_statements,
)
from tests.integration.command import COMMAND, PATIENCE_SECONDS, wait_until
from tests.integration.terminal import CTRL_C, PROMPT, UP, Terminal
from tests.servers.child import bare_environment, free_ports
from tests.servers.proxy import Request, method, slow_down

# What is compressed could not be searched. Spark is told to say more than it usually does.
_SETTINGS = """
warehouse = "{warehouse}"
warehouse_secret = "lake"

[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {tmp}"
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
_PORTS_TRIED = 3


@dataclass
class Driven:
    """All that is to be searched beside files and objects, and what tells that it was worth it."""

    said: list[Piece] = field(default_factory=list)
    told_by_spark: list[Piece] = field(default_factory=list)
    command_lines: list[Piece] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    job_by_name: dict[str, JobState] = field(default_factory=dict)


@dataclass
class Ground:
    """The folders in which commands are typed, with two homes: one has its key elsewhere."""

    root: Path
    lake: Lake
    driven: Driven = field(default_factory=Driven)
    started: list["Command"] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)
        for name in ("tmp", "events", "work", "typed", "modules", "home", "keyed"):
            (self.root / name).mkdir()
        (self.root / "modules" / "refusing.py").write_text(_FUNCTIONS)
        (self.root / "typed" / "secret").write_text(f"{self.lake.seaweed.secret_key}\n")
        for home in ("home", "keyed"):
            settings = _SETTINGS.format(
                warehouse=self.lake.bucket.uri(f"warehouse-of-{home}"),
                tmp=f"-Djava.io.tmpdir={self.root / 'tmp'}",
                port=self.port,
                events=self.root / "events",
            )
            (self.root / home / "penstock.toml").write_text(settings)

    @property
    def home(self) -> Path:
        """The home in which most things happen."""
        return self.root / "home"

    @property
    def environment(self) -> dict[str, str]:
        """What every command finds around it."""
        return bare_environment(
            TMPDIR=str(self.root / "tmp"),
            PYTHONPATH=str(self.root / "modules"),
            COLUMNS="300",
            PENSTOCK_HOME=str(self.home),
            AWS_ENDPOINT_URL_STS=self.lake.sts,
            AWS_EC2_METADATA_DISABLED="true",
            LAKE_ACCESS_KEY=self.lake.seaweed.access_key,
        )

    def start(self, *words: str, stdin: str = "", **environment: str) -> "Command":
        """Start a command."""
        typed = self.root / "typed" / secrets.token_hex(4)
        typed.write_text(stdin)
        with typed.open("rb") as given, typed.with_suffix(".said").open("wb") as said:
            process = subprocess.Popen(
                [COMMAND, *words],
                cwd=self.root / "work",
                env={**self.environment, **environment},
                stdin=given,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        command = Command(
            words=words, process=process, said=typed.with_suffix(".said"), driven=self.driven
        )
        self.started.append(command)
        return command

    def close(self) -> None:
        """End what still runs."""
        for command in self.started:
            if command.process.poll() is None:
                command.kill()
        self.lake.opened.set()

    def run(self, *words: str, stdin: str = "", **environment: str) -> "Ended":
        """Run a command to its end."""
        return self.start(*words, stdin=stdin, **environment).wait()

    def sql(self, *statements: str, words: tuple[str, ...] = (), **environment: str) -> "Ended":
        """Run statements."""
        self.driven.scripts += statements
        return self.run("sql", *words, stdin=";\n".join(statements), **environment)

    def catalog(self) -> Catalog:
        """Open the catalog of the home; the caller closes it."""
        return open_catalog(f"sqlite:///{self.home}/catalog.db", clock=SystemClock())


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, and everything it said."""

    code: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that was started."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    said: Path
    driven: Driven

    def wait(self) -> Ended:
        """Wait for its end, and hear what it said."""
        code = self.process.wait(PATIENCE_SECONDS)
        content = self.said.read_bytes()
        self.driven.said.append(Piece(place=" ".join(self.words), content=content))
        return Ended(code=code, text=content.decode(errors="replace"))

    def look(self) -> None:
        """Look at the command lines of what it has started."""
        self.driven.command_lines += process_pieces(self.process.pid)

    def has_stopped(self) -> bool:
        """Tell whether something that it has started stands still."""
        return any(_stopped(one) for one in psutil.Process(self.process.pid).children(True))

    def kill(self) -> Ended:
        """Kill it together with all that it has started."""
        own = psutil.Process(self.process.pid)
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return self.wait()


def _stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_STOPPED
    return False


def drive(ground: Ground) -> Driven:
    """Do everything that can be done with a secret."""
    lake = ground.lake
    lake.slow.inject(slow_down(), times=10**6)
    with ThreadPoolExecutor(2) as waiting:
        prepare(ground)
        slow = [waiting.submit(fail, ground, failing) for failing in slow_statements(lake)]
        freeze_and_kill(ground)
        with open_prompt(ground) as prompt:
            type_failures(ground, prompt)
            type_queries(ground, prompt)
            run_everything(ground)
            type_changes(ground, prompt)
        recall(ground)
        print_in_every_format(ground)
        lose_the_key(ground)
        for ended in slow:
            ended.result()
    return ground.driven


def fail(ground: Ground, failing: Failing) -> None:
    """Run a statement that is refused."""
    ended = ground.run("sql", stdin=failing.sql)
    assert ended.code == 1, failing.sql
    assert f"error {failing.code}" in ended.text, ended.text


def prepare(ground: Ground) -> None:
    """Make secrets, tables and jobs that Spark only schedules, and look at them."""
    lake, canaries = ground.lake, ground.lake.canaries
    odd = "&<%'\"\\"
    keys = {"s3.region": "us-east-1", **lake.keys}
    source, bad = lake.bucket.uri("in/*.json"), lake.bucket.uri("bad/*.json")
    elsewhere = lake.open_bucket.uri("in/*.json")
    referring = {"s3.access_key": "SECRET 'plain'", "s3.secret_key": "SECRET 'plain'"}
    outside = {
        "s3.access_key": "env:LAKE_ACCESS_KEY",
        "s3.secret_key": f"file:{ground.root / 'typed' / 'secret'}",
    }
    faulty = {**lake.access, "s3.endpoint": lake.faulty.endpoint}
    ended = ground.sql(
        f"CREATE SECRET lake ({pairs({'s3.endpoint': lake.warehouse.endpoint, **keys})})",
        f"CREATE SECRET plain ({pairs(lake.keys)})",
        f"CREATE SECRET fading ({pairs(lake.keys)})",
        f"CREATE SECRET shed ({pairs({'password': canaries.secret('password', joints=odd)})})",
        f"ALTER SECRET shed ({pairs({'password': canaries.secret('rotated', joints=odd)})})",
        f"CREATE SECRET IF NOT EXISTS shed ({pairs(lake.other_keys('not taken'))})",
        "SHOW SECRETS",
        "DROP SECRET shed",
        *(f"CREATE TABLE {name} (id BIGINT NOT NULL, note STRING)" for name in TABLES),
        "CREATE TABLE names (id BIGINT, name STRING)",
        job("literal", insert(source, lake.access)),
        job("referring", insert(source, {"s3.endpoint": lake.seaweed.endpoint, **referring})),
        job("outside", insert(source, {"s3.endpoint": lake.seaweed.endpoint, **outside})),
        job("token", insert(elsewhere, lake.any_access("token", **token(canaries)))),
        job("role", insert(elsewhere, lake.any_access("role", **{"s3.role_arn": ROLE}))),
        job("strict", insert(bad, lake.access)),
        job("lax", insert(bad, lake.access), session__enable_insert_strict="false"),
        job("gated", insert(source, {**lake.access, "s3.endpoint": lake.gate.endpoint})),
        job("echoing", insert(source, faulty)),
        job("uncommitted", insert(source, lake.access, table="refused")),
        job("fading", insert(source, {**faulty, **fading()})),
        *(f"SHOW CREATE JOB {name}" for name in JOBS),
        "SHOW TABLES",
        "DESCRIBE t",
        "DESCRIBE DETAIL t",
        "SHOW CREATE TABLE t",
        "SHOW EVENTS FOR literal",
        words=("--verbose",),
    )
    assert ended.code == 0, ended.text
    names = pa.table({"id": [1, 2], "name": ["one", "two"]})
    location = re.search(r"s3://\S+/names-\w+", ended.text)
    assert location is not None
    write_deltalake(
        location[0], names, mode="append", storage_options=lake.bucket.storage_options
    )


TABLES = ("t", "refused", "broken")
JOBS = ("literal", "referring", "outside", "token", "role")


def token(canaries: Canaries) -> dict[str, str]:
    return {"s3.session_token": canaries.secret("session token", joints="/+=")}


def fading() -> dict[str, str]:
    return {"s3.access_key": "SECRET fading", "s3.secret_key": "SECRET fading"}


def freeze_and_kill(ground: Ground) -> None:
    """Kill a run in the middle of an epoch, whose key is a variable; its files stay."""
    lake = ground.lake
    key = lake.canaries.secret("key in a variable")
    keyed = {"PENSTOCK_HOME": str(ground.root / "keyed"), "PENSTOCK_SECRET_KEY": key}
    warehouse = {"s3.endpoint": lake.warehouse.endpoint, **lake.keys}
    ended = ground.sql(
        f"CREATE SECRET lake ({pairs(warehouse)})",
        "CREATE TABLE t (id BIGINT NOT NULL, note STRING)",
        job("killed", insert(lake.bucket.uri("in/*.json"), lake.access)),
        **keyed,
    )
    assert ended.code == 0, ended.text
    frozen = f"{CrashPoint.TASK_WRITTEN}:stop"
    running = ground.start("run", "--verbose", **keyed, PENSTOCK_CRASH_AT=frozen)
    wait_until(running.has_stopped)
    running.look()
    running.kill()


@dataclass
class Prompt:
    """A prompt that was opened; what it answers is told from what was typed."""

    terminal: Terminal
    driven: Driven

    @property
    def answered(self) -> bytes:
        """All that it has shown while nobody typed."""
        return typed_out_of(self.terminal._shown)

    def ask(self, statement: str, *, answer: str) -> None:
        """Type a statement and require that its answer holds a text."""
        self.driven.scripts.append(statement)
        said = self.press(f"{statement};\r")
        assert answer in said, f"{statement}\n{said}"

    def press(self, keys: str) -> str:
        """Press keys that lead to another prompt; answer what is shown before that."""
        before, prompts = len(self.answered), self.terminal._shown.count(PASTE_ON)
        self.terminal.type(keys)
        wait_until(lambda: self.terminal._shown.count(PASTE_ON) > prompts)
        return self.answered[before:].decode()


@contextmanager
def open_prompt(ground: Ground) -> Iterator[Prompt]:
    """Give a prompt; all that it has answered is heard in the end."""
    environment = {**ground.environment, "EDITOR": "cat"}
    del environment["COLUMNS"]
    terminal = Terminal(ground.root / "work", columns=1000, environment=environment)
    prompt = Prompt(terminal=terminal, driven=ground.driven)
    try:
        terminal.see(PROMPT)
        yield prompt
        terminal.leave()
    finally:
        terminal.end()
        ground.driven.said.append(Piece(place="the prompt", content=prompt.answered))


def type_failures(ground: Ground, prompt: Prompt) -> None:
    """Type statements that are refused, and open one of them in an editor."""
    lake = ground.lake
    lake.faulty.inject(lake.echo(), times=10**6)
    for failing in failing_statements(lake):
        prompt.ask(failing.sql, answer=f"error {failing.code}")
    lake.faulty.heal()
    edited = f"CREATE SECRET edited ({pairs(lake.other_keys('edited'))}) oops"
    prompt.ask(edited, answer="error SYNTAX_ERR")
    assert "CREATE SECRET edited ('s3.access_key' = '***'" in prompt.press("\\e\r")
    prompt.press(CTRL_C)


def type_queries(ground: Ground, prompt: Prompt) -> None:
    """Type what needs Spark, with servers that refuse in between."""
    lake = ground.lake
    source = lake.bucket.uri("in/*.json")
    joined = "SELECT s.id, n.name AS note FROM SRC s LEFT JOIN names n ON s.id = n.id"
    refusing = "SELECT id, refuse(note) AS note FROM SRC"
    unfinished = "SELECT id, note FROM SRC WHERE id ="
    with_functions = {"session__python_udfs": "refusing"}

    def create(name: str, select: str, **properties: str) -> str:
        return job(name, insert(source, lake.access, select=select), **properties)

    prompt.ask(create("joined", joined), answer="job joined created")
    prompt.ask(create("refusing", refusing, **with_functions), answer="job refusing created")
    prompt.ask(create("never", refusing), answer="error TYPE_ERR")
    prompt.ask(create("never", unfinished), answer="Syntax error")
    prompt.ask("EXPLAIN JOB joined", answer="limit max_interval")
    prompt.ask('SELECT * FROM jobs("type" = "insert")', answer="rows, ")
    prompt.ask('SELECT * FROM tasks("type" = "insert")', answer="row")
    prompt.ask("SELECT n.name FROM names n WHERE n.id = 1", answer="1 row, ")
    for status in (403, 404, 412):
        with lake.refusing(status, when=method("GET", path=".parquet")):
            prompt.ask("SELECT count(*) FROM names", answer="error ")
        with lake.refusing(status, when=method("GET")):
            prompt.ask("DESCRIBE DETAIL names", answer="error ")
    with lake.refusing(403, when=method("PUT")):
        prompt.ask("CREATE TABLE unborn (id INT)", answer="error STORAGE_ERR")
        prompt.ask("PAUSE JOB literal", answer="error ")


def run_everything(ground: Ground) -> None:
    """Run all jobs: some load, some fail, and Spark is asked what it knows of them."""
    lake = ground.lake
    ground.sql(f"ALTER SECRET fading ({pairs(lake.other_keys('faded'))})", "RESUME JOB literal")
    lake.faulty.inject(lake.echo(), when=method("GET"), times=10**6)
    lake.warehouse.inject(lake.echo(), when=_is_commit_to_refused, times=10**6)
    lake.gate.inject(lake.echo(), when=lake.hold, times=10**6)
    with closing(ground.catalog()) as catalog:
        running = ground.start("run", "--until-caught-up", "--verbose")
        wait_until(lambda: _unsettled(catalog) <= {"gated"})
        running.look()
        for port in range(ground.port, ground.port + _PORTS_TRIED):
            with suppress(ConnectionRefusedError):
                ground.driven.told_by_spark += ui_pieces(port)
        lake.opened.set()
        wait_until(lambda: not _unsettled(catalog))
        running.process.send_signal(signal.SIGINT)
        running.wait()
        ground.driven.job_by_name = {state.name: state for state in catalog.jobs()}
    lake.faulty.heal()
    lake.warehouse.heal()


def _is_commit_to_refused(request: Request) -> bool:
    return request.method == "PUT" and "/refused-" in request.path and "_log/" in request.path


def _unsettled(catalog: Catalog) -> set[str]:
    """Answer the jobs that have neither loaded anything nor failed yet."""
    return {
        state.name
        for state in catalog.jobs()
        if not state.cumulative.rows_loaded
        and not any(map(_failure, catalog.events(state.id)))
        and not any(entry.reason for entry in catalog.ledger(state.id, newest=100))
    }


def _failure(event: Event) -> bool:
    paused = isinstance(event.body, WishChanged) and event.body.reason is not None
    return paused and event.body.reason.code is not Code.MANUAL_PAUSE_ERR


def type_changes(ground: Ground, prompt: Prompt) -> None:
    """Type what changes and ends jobs that have loaded."""
    lake = ground.lake
    source = lake.bucket.uri("in/*.json")
    other = insert(source, {**lake.access, **lake.other_keys("altered")})
    prompt.ask('SELECT error, raw FROM rejects("job" = "lax")', answer="1 row, ")
    prompt.ask("PAUSE JOB literal", answer="job literal paused")
    prompt.ask(f"ALTER JOB literal {other}", answer="job literal altered")
    prompt.ask("EXPLAIN JOB literal", answer="access was refused")
    prompt.ask(f"ALTER JOB literal {insert(source, lake.access)}", answer="literal altered")
    prompt.ask("RESUME JOB literal", answer="job literal resumed")
    prompt.ask("SHOW EPOCHS FOR echoing", answer="rows, ")
    prompt.ask("SHOW EVENTS FOR literal", answer="rows, ")
    prompt.ask("SHOW JOBS", answer="rows, ")
    prompt.ask("DROP JOB referring", answer="job referring dropped")
    prompt.ask("DROP TABLE broken", answer="table broken dropped")


def recall(ground: Ground) -> None:
    """Look through the history of the prompt; what is shown then was not typed."""
    with open_prompt(ground) as prompt:
        prompt.terminal.type(UP * 100)
        prompt.terminal.see("CREATE SECRET s (s3.secret_key '***')")
        prompt.press(CTRL_C)
    shown = Piece(place="the history", content=prompt.terminal._shown)
    ground.driven.said.append(shown)


def print_in_every_format(ground: Ground) -> None:
    """Print what is known of jobs and secrets."""
    for output in ("table", "vertical", "json", "csv"):
        ground.sql(
            "SHOW JOBS",
            "SHOW SECRETS",
            "SHOW CREATE JOB literal",
            "SHOW EVENTS FOR echoing",
            "SHOW EPOCHS FOR echoing",
            'SELECT * FROM jobs("type" = "insert")',
            words=("--format", output),
        )
    ground.run("doctor", "--quick")
    ground.run("doctor", "--quick", "--format", "json")


def lose_the_key(ground: Ground) -> None:
    """Let the key be lost, seen by others, and be another one."""
    lake = ground.lake
    key_file = ground.home / "secret.key"
    key = key_file.read_text()
    lake.canaries.adopt("the key", key.strip())
    key_file.unlink()
    ground.sql(f"CREATE SECRET late ({pairs(lake.other_keys('without a key'))})")
    key_file.write_text(key)
    key_file.chmod(0o644)
    ground.run("run", "--until-caught-up", "--timeout", "3s")
    key_file.unlink()
    key_file.touch(0o600)
    key_file.write_text(lake.canaries.secret("another key"))
    ground.sql("EXPLAIN JOB literal")
    ground.run("doctor", "--quick")
    key_file.write_text(key)
    damage(ground)
    ground.sql("EXPLAIN JOB literal")


def damage(ground: Ground) -> None:
    """Cut off the ends of what is sealed in the catalog."""
    with closing(sqlite3.connect(ground.home / "catalog.db")) as database:
        print(database.execute("select sql from sqlite_master").fetchall())
