"""Load order files, kill the process in the middle, start it again, count every row.

Drives the real ``penstock`` command. What it says at the end comes from the Delta table itself,
read by deltalake, which knows nothing of Penstock. Exits with 1 if a row is lost or doubled.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import monotonic

from deltalake import DeltaTable, QueryBuilder
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

FILES_FIRST = 60
FILES_MORE = 8
ORDERS_PER_FILE = 4_000
FILES_PER_EPOCH = 3
LATE_NAME = "0000-forgotten-till.json"
ITEMS = ("bread", "butter", "coffee", "honey", "milk", "oats", "pears", "salt", "tea")

RUN_SECONDS_MAX = 300
LOOK_SECONDS = 0.02
TEMPORARY_PREFIX = "demo-"

STATEMENTS = """\
CREATE TABLE orders (
  order_id BIGINT NOT NULL, till STRING, customer STRING, item STRING,
  quantity INT, amount DECIMAL(10, 2), ordered_at TIMESTAMP
) LOCATION '{table}';

CREATE JOB load_orders
PROPERTIES ("s3.max_batch_files" = "{files_per_epoch}")
ON STREAMING DO
INSERT INTO orders SELECT * FROM FILES (
  "uri" = "file://{inbox}/*.json",
  "format" = "json"
);
"""

console = Console(highlight=False)


class DemoError(Exception):
    """The demo cannot go on; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is in some files, or in the table."""

    files: int = 0
    rows: int = 0
    orders: int = 0
    amount: Decimal = Decimal(0)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            files=self.files + other.files,
            rows=self.rows + other.rows,
            orders=self.orders + other.orders,
            amount=self.amount + other.amount,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one demo."""

    root: Path

    @property
    def inbox(self) -> Path:
        """Where files arrive."""
        return self.root / "inbox"

    @property
    def table(self) -> Path:
        """Where the Delta table is."""
        return self.root / "orders"

    @property
    def home(self) -> Path:
        """Where Penstock remembers."""
        return self.root / "home"


def main() -> int:
    """Run the demo; answer the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the demo")
    keep = bool(parser.parse_args().keep)
    started = monotonic()
    place = Place(root=Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX)).resolve())
    try:
        sound = play(place)
    except DemoError as error:
        console.print(f"[bold red]The demo stopped:[/] {error}")
        sound = False
    except KeyboardInterrupt:
        console.print("[bold red]The demo was interrupted.[/]")
        sound = False
    finally:
        console.show_cursor()
        if keep:
            console.print(f"Everything is kept in {place.root}")
        else:
            # A JVM that is on its way out may still remove files of its own here.
            shutil.rmtree(place.root, ignore_errors=True)
    console.print(f"[dim]{monotonic() - started:.0f} seconds in all.[/]")
    return 0 if sound else 1


def play(place: Place) -> bool:
    """Do every step and answer whether the table holds every order exactly once."""
    step(1, f"{FILES_FIRST} order files arrive in a folder")
    expected = write_files(place, names(FILES_FIRST), first_order=1)
    console.print(f"{expected.rows:,} orders, one JSON object per line, for example:")
    show_example(place)

    step(2, "Two statements: a table, and a job that keeps loading the folder")
    create(place)

    step(3, "penstock run, and kill -9 in the middle")
    run_and_kill(place, expected)

    step(4, "Start it again: it goes on from the last commit in the table")
    run_until_caught_up(place)

    step(5, f"{FILES_MORE} more files arrive, one named to sort before all others")
    more = [LATE_NAME, *names(FILES_MORE - 1, first=FILES_FIRST)]
    expected += write_files(place, more, first_order=expected.orders + 1)
    console.print(f"New: {', '.join(more[:2])}, … {more[-1]}")
    run_until_caught_up(place)

    step(6, "Count the rows with deltalake, which knows nothing of Penstock")
    return report(place, expected)


def step(number: int, text: str) -> None:
    """Say what comes next."""
    console.print()
    console.rule(f"[bold cyan]{number}[/]  [bold]{text}[/]", align="left", style="cyan")


def names(count: int, *, first: int = 0) -> list[str]:
    """Answer the names of files as tills write them."""
    return [f"till-{number:04d}.json" for number in range(first, first + count)]


def write_files(place: Place, file_names: list[str], *, first_order: int) -> Tally:
    """Write order files; move each in when it is complete. Answer what they hold."""
    place.inbox.mkdir(exist_ok=True)
    tally = Tally()
    for name in file_names:
        orders = [order(first_order + tally.orders + n, name) for n in range(ORDERS_PER_FILE)]
        beside = place.root / name
        beside.write_text("".join(json.dumps(o) + "\n" for o in orders), encoding="utf-8")
        beside.replace(place.inbox / name)
        amount = sum((Decimal(str(o["amount"])) for o in orders), start=Decimal(0))
        tally += Tally(files=1, rows=len(orders), orders=len(orders), amount=amount)
    return tally


def order(number: int, file_name: str) -> dict[str, object]:
    """Answer one order; the same number always gives the same one."""
    chance = number * 2_654_435_761 % 2**32
    seconds = number % 86_400
    return {
        "order_id": number,
        "till": file_name.removesuffix(".json"),
        "customer": f"customer-{chance % 10_000:04d}",
        "item": ITEMS[chance % len(ITEMS)],
        "quantity": 1 + chance % 9,
        "amount": (50 + chance % 20_000) / 100,
        "ordered_at": f"2026-01-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
        f":{seconds % 60:02d}Z",
    }


def show_example(place: Place) -> None:
    """Show the first order."""
    first = min(place.inbox.iterdir())
    with first.open(encoding="utf-8") as stream:
        line = stream.readline().rstrip()
    syntax = Syntax(line, "json", background_color="default", word_wrap=True)
    console.print(Padding(syntax, (0, 2)))


def create(place: Place) -> None:
    """Create the table and the job."""
    text = STATEMENTS.format(
        table=place.table, inbox=place.inbox, files_per_epoch=FILES_PER_EPOCH
    )
    syntax = Syntax(text.rstrip(), "sql", background_color="default", word_wrap=True)
    console.print(Padding(syntax, (0, 2)))
    end(place, "sql", "-e", text)


def run_and_kill(place: Place, expected: Tally) -> None:
    """Run the job and kill the process inside an epoch, after a third of the rows."""
    console.print(
        f"At most {FILES_PER_EPOCH} files make an epoch, so that there are about "
        f"{FILES_FIRST // FILES_PER_EPOCH} commits to interrupt. Spark is starting …"
    )
    with started(place, "run") as process:
        deadline = monotonic() + RUN_SECONDS_MAX
        while not in_the_middle(place, expected):
            if monotonic() > deadline:
                raise DemoError(f"nothing to kill after {RUN_SECONDS_MAX} seconds")
            if ended_within(process, LOOK_SECONDS):
                raise DemoError(f"penstock run ended with {process.returncode} by itself")
        process.kill()
        process.wait()
    # The live table of a killed process leaves the cursor hidden, inside its last line.
    console.show_cursor()
    console.print()
    rows = visible_rows(place)
    console.print(
        f"[bold red]Killed process {process.pid} with -9.[/] The table shows {rows:,} of "
        f"{expected.rows:,} rows: whole epochs only. What the epoch in work had written "
        "lies in Parquet files that no reader sees."
    )
    if rows >= expected.rows:
        raise DemoError("everything was loaded before the kill; there was no middle")


def in_the_middle(place: Place, expected: Tally) -> bool:
    """Tell whether part of the rows can be seen and an epoch is writing more."""
    done = visible_rows(place) / expected.rows
    return done >= 1 / 3 and (unseen_files(place) > 0 or done >= 2 / 3)


def run_until_caught_up(place: Place) -> None:
    """Run the job until everything that waits is loaded."""
    end(place, "run", "--until-caught-up", "--timeout", f"{RUN_SECONDS_MAX}s")


def end(place: Place, *arguments: str) -> None:
    """Run a command to its end; refuse to go on if it fails."""
    with started(place, *arguments) as process:
        code = process.wait()
    if code != 0:
        raise DemoError(f"penstock {arguments[0]} ended with {code}")


@contextmanager
def started(place: Place, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the penstock command on this terminal; it has ended when the block is left."""
    command = Path(sys.executable).with_name("penstock")
    if not command.exists():
        raise DemoError(f"{command} does not exist; run make setup first")
    shown = " ".join("…" if "\n" in argument else argument for argument in arguments)
    console.print(f"[dim]$ penstock {shown}[/]")
    # Settings of another Penstock stay out; what a killed process leaves goes with the demo.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    environment = {**kept, "PENSTOCK_HOME": str(place.home), "TMPDIR": str(place.root)}
    process = subprocess.Popen([command, *arguments], env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            if not ended_within(process, 30):
                process.kill()
                process.wait()


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process for a while; answer whether it has ended."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def visible_rows(place: Place) -> int:
    """Count the rows that a reader of the table sees right now."""
    return int(DeltaTable(place.table).count())


def read_back(place: Place) -> Tally:
    """Count files, rows and orders in the table with deltalake's own query engine."""
    query = """
        SELECT count(DISTINCT till) AS files, count(*) AS rows,
               count(DISTINCT order_id) AS orders, sum(amount) AS amount
        FROM orders
    """
    tables = QueryBuilder().register("orders", DeltaTable(place.table))
    answer = tables.execute(query).read_all()
    files, rows, orders, amount = (answer[name][0].as_py() for name in answer.column_names)
    return Tally(files=files, rows=rows, orders=orders, amount=amount or Decimal(0))


def report(place: Place, expected: Tally) -> bool:
    """Print the summary; answer whether nothing is lost and nothing doubled."""
    found = read_back(place)
    lost, doubled = expected.orders - found.orders, found.rows - found.orders
    sound = found == expected
    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column()
    table.add_column("in the files", justify="right")
    table.add_column("in the table", justify="right")
    table.add_row("files", f"{expected.files:,}", f"{found.files:,}")
    table.add_row("rows", f"{expected.rows:,}", f"{found.rows:,}")
    table.add_row("different orders", f"{expected.orders:,}", f"{found.orders:,}")
    table.add_row("sum of amounts", f"{expected.amount:,}", f"{found.amount:,}")
    table.add_row()
    table.add_row("[bold]rows lost[/]", "", verdict(lost))
    table.add_row("[bold]rows doubled[/]", "", verdict(doubled))
    console.print(Panel.fit(table, border_style="green" if sound else "red"))
    if sound:
        console.print("[bold green]Every order of every file is in the table exactly once.[/]")
    else:
        console.print("[bold red]The table is not what the files hold.[/]")
    console.print(
        f"[dim]Parquet files of the killed epoch that no reader sees: {unseen_files(place)}.[/]"
    )
    return sound


def verdict(count: int) -> str:
    """Colour a count that must be nought."""
    return f"[bold {'red' if count else 'green'}]{count:,}[/]"


def unseen_files(place: Place) -> int:
    """Count the data files that no version of the table names: what the kill left behind."""
    named = {Path(uri).name for uri in DeltaTable(place.table).file_uris()}
    return len({path.name for path in place.table.glob("*.parquet")} - named)


if __name__ == "__main__":
    sys.exit(main())
