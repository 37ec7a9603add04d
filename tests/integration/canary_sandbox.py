"""Two Penstock homes with folders for all files, and the captured output of commands."""

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from tests.forking import CommandContext, Forked
from tests.integration.canary import PASTE_ON, Piece, process_pieces, without_typed_lines
from tests.integration.canary_lake import Lake
from tests.integration.command import COMMAND, TIMEOUT_SECONDS, wait_until
from tests.integration.terminal import PROMPT, Terminal
from tests.servers.child import bare_environment, free_ports

# Compressed files could not be searched.
_SETTINGS = """
warehouse = "{warehouse}"
warehouse_secret = "lake"

[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {temporary}"
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
_WRITTEN = ("home", "keyed", "tmp", "events", "work")


@dataclass
class Captured:
    """Captured output, apart from files and objects."""

    outputs: list[Piece] = field(default_factory=list)
    command_lines: list[Piece] = field(default_factory=list)
    spark_pages: list[Piece] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Exit code and complete output of a command."""

    code: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A started command."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes] | Forked"
    output: Path
    captured: Captured

    def wait(self) -> Ended:
        """Wait for the command to end, and capture its output."""
        code = self.process.wait(TIMEOUT_SECONDS)
        content = self.output.read_bytes()
        self.captured.outputs.append(Piece(place=" ".join(self.words), content=content))
        return Ended(code=code, text=content.decode(errors="replace"))

    def record_command_lines(self) -> None:
        """Capture the command lines of all descendants."""
        self.captured.command_lines += process_pieces(self.process.pid)

    def has_stopped(self) -> bool:
        """Return whether a descendant is suspended."""
        return any(map(_stopped, self._descendants()))

    def kill(self) -> Ended:
        """Kill the command together with all descendants."""
        descendants = self._descendants()
        self.process.kill()
        for process in descendants:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return self.wait()

    def _descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


def _stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_STOPPED
    return False


@dataclass
class Sandbox:
    """Runs commands in two homes: one has its key in a file, the other in a variable."""

    root: Path
    lake: Lake
    captured: Captured = field(default_factory=Captured)
    started: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)
        for name in (*_WRITTEN, "typed", "modules"):
            (self.root / name).mkdir()
        (self.root / "modules" / "refusing.py").write_text(_FUNCTIONS)
        self.secret_file.write_text(f"{self.lake.bucket.secret_key}\n")
        for home in (self.home, self.keyed):
            settings = _SETTINGS.format(
                warehouse=self.lake.bucket.uri(f"warehouse-of-{home.name}"),
                temporary=f"-Djava.io.tmpdir={self.root / 'tmp'}",
                port=self.port,
                events=self.root / "events",
            )
            (home / "penstock.toml").write_text(settings)

    @property
    def home(self) -> Path:
        """The home for most commands."""
        return self.root / "home"

    @property
    def keyed(self) -> Path:
        """The home whose key is in a variable."""
        return self.root / "keyed"

    @property
    def secret_file(self) -> Path:
        """A file of the user that contains a secret."""
        return self.root / "typed" / "secret"

    @property
    def written(self) -> tuple[Path, ...]:
        """All folders into which Penstock and Spark write."""
        return tuple(self.root / name for name in _WRITTEN)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every command."""
        bare = bare_environment()
        return {k: v for k, v in bare.items() if not k.startswith("PENSTOCK_")} | {
            "TMPDIR": str(self.root / "tmp"),
            "PYTHONPATH": str(self.root / "modules"),
            "PENSTOCK_HOME": str(self.home),
            "LAKE_ACCESS_KEY": self.lake.bucket.access_key,
            "AWS_ACCESS_KEY_ID": self.lake.found.access,
            "AWS_SECRET_ACCESS_KEY": self.lake.found.secret,
            "AWS_ENDPOINT_URL_STS": self.lake.sts,
        }

    def start(self, *words: str, stdin: str = "", **environment: str) -> Command:
        """Start the installed command in the background."""
        typed, output = self._streams(stdin)
        with typed.open("rb") as input_file, output.open("wb") as stream:
            process = subprocess.Popen(
                [COMMAND, *words],
                cwd=self.root / "work",
                env={**self.environment, **environment},
                stdin=input_file,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        return self._started(words, process, output)

    def run(self, *words: str, stdin: str = "", **environment: str) -> Ended:
        """Run a command to its end."""
        typed, output = self._streams(stdin)
        context = CommandContext(
            environment={**self.environment, **environment},
            folder=str(self.root / "work"),
            stdin=str(typed),
            stdout=str(output),
        )
        return self._started(words, Forked(words, context), output).wait()

    def _streams(self, stdin: str) -> tuple[Path, Path]:
        """Return a file with the input, and a path for the output."""
        typed = self.root / "typed" / secrets.token_hex(4)
        typed.write_text(stdin)
        return typed, typed.with_suffix(".out")

    def _started(
        self, words: tuple[str, ...], process: "subprocess.Popen[bytes] | Forked", output: Path
    ) -> Command:
        self.started.append(
            Command(words=words, process=process, output=output, captured=self.captured)
        )
        return self.started[-1]

    def sql(self, *statements: str, words: Sequence[str] = (), **environment: str) -> Ended:
        """Run statements."""
        self.captured.scripts += statements
        return self.run("sql", *words, stdin=";\n".join(statements), **environment)

    def catalog(self) -> Catalog:
        """Open the catalog of the home; the caller must close it."""
        return open_catalog(f"sqlite:///{self.home}/catalog.db", clock=SystemClock())

    def close(self) -> None:
        """Kill commands that still run."""
        for command in self.started:
            if command.process.poll() is None:
                command.kill()


@dataclass
class Prompt:
    """An open prompt; separates its output from typed text."""

    terminal: Terminal
    captured: Captured

    @property
    def shown(self) -> bytes:
        """All output, including typed text."""
        return self.terminal._shown

    @property
    def printed(self) -> bytes:
        """All output without typed text."""
        return without_typed_lines(self.shown)

    def run_statement(self, statement: str, *, expected: str) -> None:
        """Type a statement and require a text in its output."""
        self.captured.scripts.append(statement)
        output = self.press(f"{statement};\r")
        assert expected in output, f"{statement}\n{output}"

    def press(self, keys: str) -> str:
        """Type keys until the next prompt; return the output before that prompt."""
        before, prompts = len(self.printed), self.shown.count(PASTE_ON)
        self.terminal.type(keys)
        wait_until(lambda: self.shown.count(PASTE_ON) > prompts)
        return self.printed[before:].decode()


@contextmanager
def open_prompt(sandbox: Sandbox) -> Iterator[Prompt]:
    """Yield a prompt; capture its output at the end."""
    environment = {**sandbox.environment, "EDITOR": "cat"}
    terminal = Terminal(
        sandbox.root / "work", columns=1000, environment=environment, installed=True
    )
    prompt = Prompt(terminal=terminal, captured=sandbox.captured)
    try:
        terminal.see(PROMPT)
        yield prompt
        terminal.leave()
    finally:
        terminal.end()
        sandbox.captured.outputs.append(Piece(place="the prompt", content=prompt.printed))
