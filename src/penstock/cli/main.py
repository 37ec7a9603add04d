"""The command line: penstock sql | run | doctor | init."""

import gc
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from penstock import __doc__ as about
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.settings.home import command_for, settings_file
from penstock.settings.settings import FILE_NAME, home_folder

if TYPE_CHECKING:
    from penstock.app import App

EXIT_FAILED = 1
# A paragraph that begins with \b keeps its lines.
STEPS = """\b
Three steps:
  1. penstock init      makes a home; penstock doctor looks at it
  2. penstock sql -e "
       CREATE TABLE orders (id BIGINT, city STRING);
       CREATE JOB load_orders ON STREAMING DO INSERT INTO orders
       SELECT id, city FROM FILES('uri' = 'file:///data/*.json',
                                  'format' = 'json')"
  3. penstock run       loads every file that appears, until Ctrl-C"""

SQL_HELP = """Run SQL statements from -e, -f or standard input; on a terminal, open a prompt.

The prompt completes with Tab, keeps a history, and lists what can be typed with "help".

\b
CREATE | DROP TABLE, DESCRIBE [DETAIL], SHOW TABLES, SHOW CREATE TABLE, SELECT
CREATE | ALTER | PAUSE | RESUME | DROP | EXPLAIN JOB, SHOW JOBS,
  SHOW CREATE JOB, SHOW EPOCHS | EVENTS FOR
CREATE | ALTER | PAUSE | RESUME | STOP ROUTINE LOAD, SHOW SHARDS FOR,
  PAUSE | RESUME ALL ROUTINE LOAD, SHOW [ALL] [CREATE] ROUTINE LOAD [TASK]
CREATE | ALTER | DROP SECRET, SHOW SECRETS

A SELECT over tables starts Spark, which takes some seconds; SELECT … FROM jobs(…) needs none.
A statement that ends with \\G instead of ; is printed vertically."""

app = typer.Typer(
    name="penstock",
    help=about,
    epilog=STEPS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    VERTICAL = "vertical"
    JSON = "json"
    CSV = "csv"


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="PENSTOCK_HOME",
        help="Folder with penstock.toml, catalog.db, warehouse/ and logs/.",
        show_default="./penstock-home",
    ),
]

VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", metavar="", help="Log everything, and show it on standard error too."
    ),
]


def _print_version(*, value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Answer the jobs whose names begin like this, from the catalog's file alone."""
    from penstock.catalog.glance import catalog_path, job_names
    from penstock.settings.settings import load_settings

    try:
        home = context.find_root().params.get("home")
        path = catalog_path(load_settings(home=home and Path(home)).catalog_url)
        names = job_names(path) if path is not None and path.exists() else []
    except Exception:  # noqa: BLE001 - A shell that completes has no place for an error.
        return []
    return [name for name in names if name.startswith(incomplete)]


@app.callback()
def penstock(
    context: typer.Context,
    *,
    home: HomeOption = None,
    version: Annotated[  # noqa: ARG001 - Its callback has done what is to be done.
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda value: _print_version(value=value),
        ),
    ] = False,
) -> None:
    """Load streams of files into Delta tables, each row exactly once."""
    context.obj = home


@app.command(
    help=SQL_HELP,
    epilog="""Example: penstock sql -e "SHOW JOBS" """,
)
def sql(
    context: typer.Context,
    *,
    execute: Annotated[
        str | None,
        typer.Option(
            "-e", "--execute", metavar="SQL", help="Statements to run, separated by ;."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", help="File with statements to run.", exists=True, dir_okay=False
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="How results are printed.")
    ] = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Run SQL statements from -e, -f or standard input; on a terminal, open a prompt."""
    if execute is not None and file is not None:
        raise typer.BadParameter("give either -e or -f, not both")
    if execute is None and file is None and sys.stdin.isatty() and sys.stdout.isatty():
        _guarded(lambda: _open_prompt(home=context.obj, output=output, verbose=verbose))
    text = execute if execute is not None else _read(file)
    _guarded(
        lambda: _run_sql(text, home=context.obj, output=output, verbose=verbose), script=text
    )


def _open_prompt(*, home: Path | None, output: Format, verbose: bool) -> int:
    from penstock.app import App
    from penstock.cli.prompt.session import open_prompt
    from penstock.settings.settings import load_settings

    application = App(load_settings(home=home), tell=_tell)
    try:
        _log_if(application, verbose=verbose)
        open_prompt(application, output=output.value)
    finally:
        application.close()
    return 0


def _read(file: Path | None) -> str:
    if file is None:
        return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    return file.read_text(encoding="utf-8", errors="surrogateescape")


def _run_sql(text: str, *, home: Path | None, output: Format, verbose: bool) -> int:
    from penstock.app import App
    from penstock.cli.printing import print_result
    from penstock.control.execute import execute
    from penstock.settings.settings import load_settings
    from penstock.sql.parser import parse_script

    statements = parse_script(text)
    application = App(load_settings(home=home), tell=_tell)
    try:
        _log_if(application, verbose=verbose)
        for parsed in statements:
            result = execute(parsed.statement, parts=application.control())
            _log_statement(parsed.statement, verbose=verbose)
            form = Format.VERTICAL if parsed.vertical else output
            print_result(result, output=form.value)
    finally:
        application.close()
    return 0


def _log_if(application: "App", *, verbose: bool) -> None:
    if verbose:
        application.log(verbose=True)


def _log_statement(statement: object, *, verbose: bool) -> None:
    if verbose:
        import structlog

        structlog.get_logger().debug("statement executed", kind=type(statement).__name__)


def _tell(line: str) -> None:
    """Say to a person, not to a program, why they wait."""
    if sys.stderr.isatty():
        sys.stderr.write(line + "\n")


@app.command(
    epilog="Example: penstock run --until-caught-up --timeout 5m",
)
def run(
    context: typer.Context,
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            metavar="",
            help="End when everything that waited at the start is loaded.",
        ),
    ] = False,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="NAME",
            help="Only this job; repeatable.",
            autocompletion=_complete_job,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", help="Give up after this long: 90s, 5m, 1h."
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Run jobs in the foreground, with live progress on a terminal and plain lines elsewhere.

    Ctrl-C ends cleanly: an epoch is finished or aborted, never half. Twice ends at once.
    """
    from penstock.model.options import parse_duration

    def work() -> int:
        from penstock.app import App
        from penstock.cli.run import Request, run_jobs
        from penstock.settings.settings import load_settings

        gc.enable()
        limit = None if timeout is None else parse_duration(timeout, what="--timeout")
        application = App(load_settings(home=context.obj), command="run")
        try:
            request = Request(
                names=tuple(job or ()),
                until_caught_up=until_caught_up,
                timeout=limit,
                verbose=verbose,
            )
            return run_jobs(application, request)
        finally:
            application.close()

    _guarded(work)


def _guarded(work: Callable[[], int], *, script: str = "") -> NoReturn:
    try:
        code = work()
    except PenstockError as error:
        print_error(error, script=script)
        code = EXIT_FAILED
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has gone, as `head` does; nothing is left to say.
            sys.stderr.close()
        else:
            print_error(ExternalError(str(error), code=Code.STORAGE_ERR))
        code = EXIT_FAILED
    raise typer.Exit(code)


def print_error(error: PenstockError, *, script: str = "") -> None:
    """Print code, message, detail, the place in the script, and hint on standard error."""
    from penstock.cli.prompt.display import error_text

    sys.stderr.write(error_text(error, script=script))


class ReportFormat(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"


@app.command(epilog="Example: penstock doctor --quick")
def doctor(
    context: typer.Context,
    *,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", metavar="", help="Start no Spark, and ask no bucket or stream."
        ),
    ] = False,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="How the report is printed.")
    ] = ReportFormat.TEXT,
) -> None:
    """Look at Python, Java, Spark, the home, credentials and jobs; say what to type next.

    Nothing is made or changed; a warehouse in a bucket is tried with a small object, unless
    --quick is given. Ends with 1 if there is a problem.
    """

    def work() -> int:
        from penstock.cli.doctor.report import run_doctor

        return run_doctor(context.obj, quick=quick, output=output.value)

    _guarded(work)


@app.command(epilog="Example: penstock init /srv/penstock")
def init(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(help="The home to make.", show_default="--home, or ./penstock-home"),
    ] = None,
) -> None:
    """Make a home with a settings file in which every setting is explained."""

    def work() -> int:
        # REMOVED

        typer.echo(make_home(folder or context.obj))
        return 0

    _guarded(work)


def main() -> None:
    """Run the command line."""
    # A statement is over before a collection pays; a run turns the collector on again.
    gc.disable()
    # Looking for plugins reads the metadata of every installed package; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    app()


def make_home(given: Path | None) -> str:
    """Make the home and its settings file; answer what to say about it."""
    home = home_folder(given)
    path = home / FILE_NAME
    try:
        home.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_file())
    except FileExistsError as error:
        raise _taken(home, path) from error
    except OSError as error:
        raise ExternalError(
            f'home "{home}" cannot be made: {error.strerror}',
            code=Code.STORAGE_ERR,
            hint="Choose another: penstock init FOLDER.",
        ) from error
    said = f"made {home} with {FILE_NAME}, in which every setting is explained"
    return f"{said}\n\n{steps(command_for(home))}"


def _taken(home: Path, path: Path) -> UserError:
    if not path.exists():
        return UserError(
            f'home "{home}" cannot be made: a file has its name',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Choose another: penstock init FOLDER.",
        )
    return UserError(
        f'settings file "{path}" exists, and is kept as it is',
        code=Code.ALREADY_EXISTS_ERR,
        hint="Edit it, or remove it and type penstock init again.",
    )


def steps(penstock: str) -> str:
    """Say what to type next."""
    lines = (
        ("doctor", "does this machine have what is needed?"),
        ("sql", "create a table and a job"),
        ("run", "load, until Ctrl-C"),
    )
    width = max(len(f"{penstock} {word}") for word, _ in lines)
    typed = [f"  {f'{penstock} {word}':<{width}}  # {why}" for word, why in lines]
    return "\n".join(["Next:", *typed])
