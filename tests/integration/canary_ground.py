"""Two homes of Penstock with a folder for everything it writes, and what is heard there."""

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from tests.forking import Forked, Surroundings
from tests.integration.canary import PASTE_ON, Piece, process_pieces, typed_out_of
from tests.integration.canary_lake import Lake
from tests.integration.command import COMMAND, PATIENCE_SECONDS, wait_until
from tests.integration.terminal import PROMPT, Terminal
from tests.servers.child import bare_environment, free_ports

# What is compressed could not be searched.
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
class Heard:
    """What was said and told, apart from files and objects."""

    said: list[Piece] = field(default_factory=list)
    command_lines: list[Piece] = field(default_factory=list)
    told_by_spark: list[Piece] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, and everything it said."""

    code: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that was started."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes] | Forked"
    said: Path
    heard: Heard

    def wait(self) -> Ended:
        """Wait for its end, and hear what it said."""
        code = self.process.wait(PATIENCE_SECONDS)
        content = self.said.read_bytes()
        self.heard.said.append(Piece(place=" ".join(self.words), content=content))
        return Ended(code=code, text=content.decode(errors="replace"))

    def look(self) -> None:
        """Look at the command lines of all that it has started."""
        self.heard.command_lines += process_pieces(self.process.pid)

    def has_stopped(self) -> bool:
        """Tell whether something that it has started stands still."""
        return any(map(_stopped, self._family()))

    def kill(self) -> Ended:
        """Kill it together with all that it has started."""
        family = self._family()
        self.process.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return self.wait()

    def _family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


def _stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_STOPPED
    return False


@dataclass
class Ground:
    """Where commands are typed; one home has its key in a file, the other in a variable."""

    root: Path
    lake: Lake
    heard: Heard = field(default_factory=Heard)
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
        """The home in which most things happen."""
        return self.root / "home"

    @property
    def keyed(self) -> Path:
        """The home whose key is in a variable."""
        return self.root / "keyed"

    @property
    def secret_file(self) -> Path:
        """A file of the user's own with a secret."""
        return self.root / "typed" / "secret"

    @property
    def written(self) -> tuple[Path, ...]:
        """All folders into which Penstock and Spark write."""
        return tuple(self.root / name for name in _WRITTEN)

    @property
    def environment(self) -> dict[str, str]:
        """What every command finds around it."""
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
        """Start the installed command."""
        typed, said = self._streams(stdin)
        with typed.open("rb") as given, said.open("wb") as output:
            process = subprocess.Popen(
                [COMMAND, *words],
                cwd=self.root / "work",
                env={**self.environment, **environment},
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self._started(words, process, said)

    def run(self, *words: str, stdin: str = "", **environment: str) -> Ended:
        """Run a command to its end."""
        typed, said = self._streams(stdin)
        around = Surroundings(
            environment={**self.environment, **environment},
            folder=str(self.root / "work"),
            stdin=str(typed),
            stdout=str(said),
        )
        return self._started(words, Forked(words, around), said).wait()

    def _streams(self, stdin: str) -> tuple[Path, Path]:
        """Answer a file with what is typed, and one for what is said."""
        typed = self.root / "typed" / secrets.token_hex(4)
        typed.write_text(stdin)
        return typed, typed.with_suffix(".said")

    def _started(
        self, words: tuple[str, ...], process: "subprocess.Popen[bytes] | Forked", said: Path
    ) -> Command:
        self.started.append(Command(words=words, process=process, said=said, heard=self.heard))
        return self.started[-1]

    def sql(self, *statements: str, words: Sequence[str] = (), **environment: str) -> Ended:
        """Run statements."""
        self.heard.scripts += statements
        return self.run("sql", *words, stdin=";\n".join(statements), **environment)

    def catalog(self) -> Catalog:
        """Open the catalog of the home; the caller closes it."""
        return open_catalog(f"sqlite:///{self.home}/catalog.db", clock=SystemClock())

    def close(self) -> None:
        """End what still runs."""
        for command in self.started:
            if command.process.poll() is None:
                command.kill()


@dataclass
class Prompt:
    """A prompt that was opened; what it shows is told from what was typed."""

    terminal: Terminal
    heard: Heard

    @property
    def shown(self) -> bytes:
        """All that it has shown, what was typed included."""
        return self.terminal._shown

    @property
    def answered(self) -> bytes:
        """All that it has shown while nobody typed."""
        return typed_out_of(self.shown)

    def ask(self, statement: str, *, answer: str) -> None:
        """Type a statement and require that its answer holds a text."""
        self.heard.scripts.append(statement)
        said = self.press(f"{statement};\r")
        assert answer in said, f"{statement}\n{said}"

    def press(self, keys: str) -> str:
        """Press keys that lead to another prompt; answer what is shown before that."""
        before, prompts = len(self.answered), self.shown.count(PASTE_ON)
        self.terminal.type(keys)
        wait_until(lambda: self.shown.count(PASTE_ON) > prompts)
        return self.answered[before:].decode()


@contextmanager
def open_prompt(ground: Ground) -> Iterator[Prompt]:
    """Give a prompt; all that it has answered is heard in the end."""
    environment = {**ground.environment, "EDITOR": "cat"}
    terminal = Terminal(
        ground.root / "work", columns=1000, environment=environment, installed=True
    )
    prompt = Prompt(terminal=terminal, heard=ground.heard)
    try:
        terminal.see(PROMPT)
        yield prompt
        terminal.leave()
    finally:
        terminal.end()
        ground.heard.said.append(Piece(place="the prompt", content=prompt.answered))
