"""Load files and a stream, kill the process in the middle, start it again, count every row.

The demo runs the real ``penstock`` command and a Kinesis server with a producer that never
pauses. Two streaming tables compute totals of the loaded orders, and the process is killed once
more. At the end, deltalake reads the Delta tables without any code of Penstock. The exit code
is 1 if a row is lost or duplicated, or if a total is wrong.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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

from examples.orders import Tally, names, write_files
from examples.streaming_tables import (
    STREAMING_TABLES,
    TABLE_FILES_PER_EPOCH,
    Total,
    read_totals,
    read_truth,
)
from examples.web_shop import KEYS, ORDERS_FIRST, REGION, STREAM, WebShop, opened_shop

FILES_FIRST = 60
FILES_MORE = 8
FILES_PER_EPOCH = 3
LATE_NAME = "0000-forgotten-till.json"

RUN_SECONDS_MAX = 300
POLL_SECONDS = 0.02
CHECKPOINT_COLUMNS = ("epoch", "rows_in", "rows_out", "rows_late", "watermark", "outcome")
TEMPORARY_PREFIX = "demo-"

TABLE = """\
CREATE TABLE {name} (
  order_id BIGINT NOT NULL, till STRING, customer STRING, item STRING,
  quantity INT, amount DECIMAL(10, 2), ordered_at TIMESTAMP
) LOCATION '{location}';
"""
JOB = """
CREATE JOB load_orders
PROPERTIES ("s3.max_batch_files" = "{files_per_epoch}")
ON STREAMING DO
INSERT INTO orders SELECT * FROM FILES (
  "uri" = "file://{inbox}/*.json",
  "format" = "json"
);
"""
ROUTINE_LOAD = """
CREATE ROUTINE LOAD load_web_orders ON web_orders
PROPERTIES ("format" = "json", "max_batch_interval" = "5s")
FROM KINESIS (
  "kinesis_stream" = "{stream}", "aws.region" = "{region}", "aws.endpoint" = "{endpoint}",
  "property.kinesis_default_pos" = "TRIM_HORIZON"
);
"""

console = Console(highlight=False)


class DemoError(Exception):
    """Raised with the reason if the demo cannot continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one demo."""

    root: Path

    @property
    def inbox(self) -> Path:
        """Folder in which files arrive."""
        return self.root / "inbox"

    @property
    def orders(self) -> Path:
        """Delta table that is loaded from the files."""
        return self.root / "orders"

    @property
    def web_orders(self) -> Path:
        """Delta table that is loaded from the stream."""
        return self.root / "web_orders"

    @property
    def per_day(self) -> Path:
        """Streaming table with a row for each day."""
        return self.root / "orders_per_day"

    @property
    def per_item(self) -> Path:
        """Streaming table with a current row for each item."""
        return self.root / "orders_per_item"

    @property
    def home(self) -> Path:
        """Home of Penstock."""
        return self.root / "home"


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--keep", action="store_true", help="do not delete the folder of the demo"
    )
    keep = bool(parser.parse_args().keep)
    started_at = monotonic()
    place = Place(root=Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX)).resolve())
    try:
        with opened_shop() as shop:
            correct = run_steps(place, shop)
    except DemoError as error:
        console.print(f"[bold red]The demo stopped:[/] {error}")
        correct = False
    except KeyboardInterrupt:
        console.print("[bold red]The demo was interrupted.[/]")
        correct = False
    finally:
        console.show_cursor()
        if keep:
            console.print(f"The files of the demo are in {place.root}")
        else:
            # A JVM that is shutting down may delete its files at the same time.
            shutil.rmtree(place.root, ignore_errors=True)
    console.print(f"[dim]The demo took {monotonic() - started_at:.0f} seconds.[/]")
    return 0 if correct else 1


def run_steps(place: Place, shop: WebShop) -> bool:
    """Run all steps; return whether every order is loaded and counted exactly once."""
    step(1, f"{FILES_FIRST} order files arrive in a folder, web orders in a Kinesis stream")
    expected = write_files(place.inbox, names(FILES_FIRST), first_order=1)
    shop.open()
    console.print(
        f"There are {expected.rows:,} orders in the files and {ORDERS_FIRST:,} in the stream. "
        "More orders arrive in the stream all the time. An order is JSON:"
    )
    show_example(place)

    step(2, "Create two tables, a job for the folder, a routine load for the stream")
    create_loads(place, shop)

    step(3, "Start penstock run, split a shard, then kill the process with kill -9")
    run_loads_and_kill(place, expected, shop)

    step(4, "Create two streaming tables: totals of the orders per day and per item")
    create_streaming_tables(place)

    step(5, "Start penstock run again, and kill it while it computes totals")
    run_tables_and_kill(place, expected)

    step(6, f"{FILES_MORE} more files arrive; one name sorts before all others")
    more = [LATE_NAME, *names(FILES_MORE - 1, first=FILES_FIRST)]
    expected += write_files(place.inbox, more, first_order=expected.orders + 1)
    console.print(f"New: {', '.join(more[:2])}, … {more[-1]}. The web shop stops selling.")
    sold = shop.close()
    run_command(place, "run", "--until-caught-up", "--timeout", f"{RUN_SECONDS_MAX}s")
    run_command(place, "sql", "-e", "SHOW SHARDS FOR load_web_orders")
    show_checkpoints(place)

    step(7, "Count the rows with deltalake, without Penstock")
    correct = [
        report(place.orders, expected, sent_in="files"),
        report(place.web_orders, sold, sent_in="stream"),
    ]

    step(8, "Compare the totals with the order files, without Penstock")
    truth = read_truth(place.inbox)
    correct += [
        report_totals(read_totals(place.per_day, "day"), truth.days, of="day"),
        report_totals(read_totals(place.per_item, "item"), truth.items, of="item"),
    ]
    return all(correct)


def step(number: int, text: str) -> None:
    """Print the heading of a step."""
    console.print()
    console.rule(f"[bold cyan]{number}[/]  [bold]{text}[/]", align="left", style="cyan")


def show_example(place: Place) -> None:
    """Show the first order."""
    first = min(place.inbox.iterdir())
    with first.open(encoding="utf-8") as stream:
        line = stream.readline().rstrip()
    syntax = Syntax(line, "json", background_color="default", word_wrap=True)
    console.print(Padding(syntax, (0, 2)))


def show_sql(text: str) -> None:
    """Show statements."""
    syntax = Syntax(text.rstrip(), "sql", background_color="default", word_wrap=True)
    console.print(Padding(syntax, (0, 2)))


def create_loads(place: Place, shop: WebShop) -> None:
    """Create the tables, the job and the routine load."""
    text = TABLE.format(name="orders", location=place.orders)
    text += JOB.format(inbox=place.inbox, files_per_epoch=FILES_PER_EPOCH)
    text += ROUTINE_LOAD.format(stream=STREAM, region=REGION, endpoint=shop.endpoint)
    show_sql(text)
    console.print("Table web_orders has the same columns as orders.")
    table = TABLE.format(name="web_orders", location=place.web_orders)
    run_command(place, "sql", "-e", table + text)


def create_streaming_tables(place: Place) -> None:
    """Create the streaming tables; CREATE runs an empty epoch of each query."""
    text = STREAMING_TABLES.format(
        per_day=place.per_day, per_item=place.per_item, files_per_epoch=TABLE_FILES_PER_EPOCH
    )
    show_sql(text)
    run_command(place, "sql", "-e", text)


def run_loads_and_kill(place: Place, expected: Tally, shop: WebShop) -> None:
    """Run the jobs, split a shard, and kill the process inside an epoch."""
    console.print(
        f"An epoch loads at most {FILES_PER_EPOCH} files, so the files need about "
        f"{FILES_FIRST // FILES_PER_EPOCH} commits. Spark is starting …"
    )
    with started(place, "run") as process:
        wait_until(process, lambda: visible_rows(place.web_orders) > 0)
        shard = shop.split()
        wait_until(process, lambda: in_the_middle(place, expected))
        kill(process)
    rows, web_rows = visible_rows(place.orders), visible_rows(place.web_orders)
    console.print(
        f"Shard {shard} was split while orders arrived. [bold red]Then process {process.pid} "
        f"was killed with kill -9.[/] Readers see {rows:,} of {expected.rows:,} rows of the "
        f"files and {web_rows:,} of {shop.sold:,} rows of the stream: only complete epochs. "
        "Parquet files of the interrupted epochs are not part of the tables."
    )
    if rows >= expected.rows:
        raise DemoError("all files were loaded before the process was killed")
    console.print("The boundaries of the backlog are stored, so the next process keeps them:")
    run_command(place, "sql", "-e", "SHOW BACKLOG FOR load_orders")


def run_tables_and_kill(place: Place, expected: Tally) -> None:
    """Run all jobs, and kill the process when the files are loaded and partly counted."""
    console.print(
        f"An epoch of a streaming table reads at most {TABLE_FILES_PER_EPOCH} data files of "
        "orders. Spark is starting …"
    )
    with started(place, "run") as process:
        wait_until(process, lambda: visible_rows(place.orders) == expected.rows)
        wait_until(process, lambda: counted(place) >= expected.rows / 4)
        kill(process)
    days = len(read_totals(place.per_day, "day"))
    console.print(
        f"[bold red]Process {process.pid} was killed with kill -9.[/] Readers of "
        f"orders_per_item see totals of {counted(place):,} of {expected.rows:,} orders. "
        f"Readers of orders_per_day see {days} complete day{'' if days == 1 else 's'}."
    )


def counted(place: Place) -> int:
    """Return the number of orders in the totals per item."""
    return sum(total.orders for total in read_totals(place.per_item, "item"))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that draws on the terminal."""
    process.kill()
    process.wait()
    # A killed process leaves the cursor hidden, in the last line of the live table.
    console.show_cursor()
    console.print()


def wait_until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    """Wait until something has happened; raise DemoError if the process ends first."""
    deadline = monotonic() + RUN_SECONDS_MAX
    while not happened():
        if monotonic() > deadline:
            raise DemoError(
                f"penstock run did not load enough within {RUN_SECONDS_MAX} seconds"
            )
        if ended_within(process, POLL_SECONDS):
            raise DemoError(f"penstock run ended early with exit code {process.returncode}")


def in_the_middle(place: Place, expected: Tally) -> bool:
    """Return whether a part of the rows is visible and an epoch is writing more rows."""
    done = visible_rows(place.orders) / expected.rows
    return done >= 1 / 3 and (uncommitted_files(place.orders) > 0 or done >= 2 / 3)


def run_command(place: Place, *arguments: str) -> None:
    """Run a penstock command; raise DemoError if it fails."""
    with started(place, *arguments) as process:
        code = process.wait()
    if code != 0:
        raise DemoError(f"penstock {arguments[0]} failed with exit code {code}")


@contextmanager
def started(place: Place, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the penstock command on this terminal; stop it at the end of the block."""
    show_command(*arguments)
    process = subprocess.Popen([command(), *arguments], env=environment(place))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            if not ended_within(process, 30):
                process.kill()
                process.wait()


def show_command(*arguments: str) -> None:
    """Show a penstock command as users type it."""
    shown = (
        "…" if "\n" in argument else f'"{argument}"' if " " in argument else argument
        for argument in arguments
    )
    console.print(f"[dim]$ penstock {' '.join(shown)}[/]")


def command() -> Path:
    """Return the path of the penstock command."""
    path = Path(sys.executable).with_name("penstock")
    if not path.exists():
        raise DemoError(f"{path} does not exist; run make setup first")
    return path


def environment(place: Place) -> dict[str, str]:
    """Return the environment of the penstock command."""
    # Settings of another home must not apply. Temporary files are deleted with the demo.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    return {**kept, "PENSTOCK_HOME": str(place.home), "TMPDIR": str(place.root), **KEYS}


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process for some seconds; return whether it has ended."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def visible_rows(table: Path) -> int:
    """Count the rows that a reader of a table sees."""
    return int(DeltaTable(table).count())


def read_back(table: Path) -> Tally:
    """Count tills, rows and orders in a table with deltalake's own query engine."""
    query = """
        SELECT count(DISTINCT till) AS tills, count(*) AS rows,
               count(DISTINCT order_id) AS orders, sum(amount) AS amount
        FROM orders
    """
    tables = QueryBuilder().register("orders", DeltaTable(table))
    found = tables.execute(query).read_all()
    tills, rows, orders, amount = (found[name][0].as_py() for name in found.column_names)
    return Tally(tills=tills, rows=rows, orders=orders, amount=amount or Decimal(0))


def report(table: Path, expected: Tally, *, sent_in: str) -> bool:
    """Print the summary of a table; return whether no row is lost or duplicated."""
    found = read_back(table)
    lost, duplicated = expected.orders - found.orders, found.rows - found.orders
    correct = found == expected
    summary = Table(box=None, padding=(0, 3, 0, 0))
    summary.add_column()
    summary.add_column(f"in the {sent_in}", justify="right")
    summary.add_column("in the table", justify="right")
    summary.add_row("tills", f"{expected.tills:,}", f"{found.tills:,}")
    summary.add_row("rows", f"{expected.rows:,}", f"{found.rows:,}")
    summary.add_row("distinct orders", f"{expected.orders:,}", f"{found.orders:,}")
    summary.add_row("sum of amounts", f"{expected.amount:,}", f"{found.amount:,}")
    summary.add_row()
    summary.add_row("[bold]rows lost[/]", "", verdict(lost))
    summary.add_row("[bold]rows duplicated[/]", "", verdict(duplicated))
    console.print(Panel.fit(summary, border_style="green" if correct else "red"))
    if correct:
        console.print(
            f"[bold green]Every order of the {sent_in} is in the table exactly once.[/]"
        )
    else:
        console.print(f"[bold red]The table differs from the {sent_in}.[/]")
    console.print(f"[dim]Parquet files outside of the table: {uncommitted_files(table)}.[/]")
    return correct


def show_checkpoints(place: Place) -> None:
    """Show the most important columns of SHOW CHECKPOINTS."""
    statement = "SHOW CHECKPOINTS FOR orders_per_day"
    show_command("sql", "-e", statement)
    printed = subprocess.run(
        [command(), "sql", "--format", "json", "-e", statement],
        env=environment(place),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in CHECKPOINT_COLUMNS:
        numeric = name not in ("watermark", "outcome")
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in json.loads(printed):
        cells = (row[name] for name in CHECKPOINT_COLUMNS)
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    console.print(table)
    console.print(
        f"[dim]These are {len(CHECKPOINT_COLUMNS)} of its columns. A day is written when the "
        "watermark passes its end. The last days are still open.[/]"
    )


def report_totals(found: list[Total], truth: list[Total], *, of: str) -> bool:
    """Print the totals of a streaming table; return whether they are those of the files."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(of)
    for head in ("orders in files", "in table", "amount in files", "in table"):
        table.add_column(head, justify="right", no_wrap=True)
    found_by_key = {total.key: total for total in found}
    for one in truth:
        other = found_by_key.get(one.key)
        orders, amount = (f"{other.orders:,}", f"{other.amount:,}") if other else ("", "")
        table.add_row(one.key, f"{one.orders:,}", orders, f"{one.amount:,}", amount)
    correct = found == truth
    console.print(Panel.fit(table, border_style="green" if correct else "red"))
    if correct:
        console.print(f"[bold green]Every {of} has the exact totals of the files.[/]")
    else:
        console.print(f"[bold red]The table per {of} differs from the files.[/]")
    return correct


def verdict(count: int) -> str:
    """Return a count that must be zero: green if it is, otherwise red."""
    return f"[bold {'red' if count else 'green'}]{count:,}[/]"


def uncommitted_files(table: Path) -> int:
    """Count the data files that are not in the table: a killed process wrote them."""
    named = {Path(uri).name for uri in DeltaTable(table).file_uris()}
    return len({path.name for path in table.glob("*.parquet")} - named)


if __name__ == "__main__":
    sys.exit(main())
