"""The command line: penstock sql | run | doctor | init."""

import gc
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock import __doc__ as about
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.settings.home import command_for, settings_file
from penstock.settings.settings import FILE_NAME, home_folder, load_settings

if TYPE_CHECKING:
    from penstock.app import App

EXIT_FAILED = 1
# Typer keeps the lines of a paragraph that starts with \b.
STEPS = """\b
Three steps:
  1. penstock init      creates a home folder; penstock doctor checks it
  2. penstock sql -e "
       CREATE TABLE orders (id BIGINT, city STRING);
       CREATE JOB load_orders ON STREAMING DO INSERT INTO orders
       SELECT id, city FROM FILES('uri' = 'file:///data/*.json',
                                  'format' = 'json')"
  3. penstock run       loads new files as they arrive, until Ctrl-C"""

SQL_HELP = """Run SQL statements from -e, -f or standard input; on a terminal, open a prompt.

At the prompt, Tab completes words, Up recalls earlier statements, and "help" shows examples.

\b
Statements:
CREATE | ALTER | DROP TABLE, DESCRIBE [DETAIL], SHOW TABLES,
  SHOW CREATE TABLE, SELECT
CREATE | ALTER | PAUSE | RESUME | DROP | EXPLAIN JOB, SHOW JOBS,
  SHOW CREATE JOB, SHOW EPOCHS FOR, SHOW EVENTS FOR, SHOW BACKLOG [FOR]
CREATE | ALTER | PAUSE | RESUME | STOP ROUTINE LOAD, SHOW SHARDS FOR,
  PAUSE | RESUME ALL ROUTINE LOAD, SHOW [ALL] ROUTINE LOAD,
  SHOW [ALL] CREATE ROUTINE LOAD FOR, SHOW ROUTINE LOAD TASK FOR
CREATE [OR REFRESH] | ALTER | PAUSE | RESUME | REFRESH | DROP | EXPLAIN
  STREAMING TABLE, SHOW STREAMING TABLES, SHOW CREATE STREAMING TABLE,
  SHOW CHECKPOINTS FOR
CREATE | ALTER | PAUSE | RESUME | REFRESH | DROP FLOW, SHOW CREATE FLOW
CREATE | ALTER | DROP SECRET, SHOW SECRETS

A SELECT from a table starts Spark, which takes some seconds. SELECT … FROM jobs(…) does not.
End a statement with \\G instead of ; to print its result vertically."""

app = typer.Typer(
    name="penstock",
    help=about,
    epilog=STEPS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


Format = Literal["table", "vertical", "json", "csv"]

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
        "--verbose", metavar="", help="Log all levels, and copy the log to standard error."
    ),
]


def _print_version(*, value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names start with a text; read only the file of the catalog."""
    from penstock.catalog.summary import catalog_path, job_names

    try:
        home = context.find_root().params.get("home")
        path = catalog_path(load_settings(home=home and Path(home)).catalog_url)
        names = job_names(path) if path is not None and path.exists() else []
    except Exception:  # noqa: BLE001 - Completion in a shell cannot show an error.
        return []
    return [name for name in names if name.startswith(incomplete)]


@app.callback()
def penstock(
    context: typer.Context,
    *,
    home: HomeOption = None,
    version: Annotated[  # noqa: ARG001 - The callback prints the version.
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
    """Load files and streams into Delta tables, each row exactly once."""
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
        Format, typer.Option("--format", help="Format of the results.")
    ] = "table",
    verbose: VerboseOption = False,
) -> None:
    """Run SQL statements from -e, -f or standard input; on a terminal, open a prompt."""
    if execute is not None and file is not None:
        raise typer.BadParameter("-e and -f cannot be used together")
    if execute is not None:
        text = execute
    elif file is not None:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        from penstock.cli.prompt.session import open_prompt

        with _errors_printed(), _opened(context.obj, verbose=verbose) as application:
            open_prompt(application, output=output)
        return
    else:
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    with _errors_printed(script=text):
        _run_sql(text, home=context.obj, output=output, verbose=verbose)


@contextmanager
def _opened(home: Path | None, *, verbose: bool) -> Iterator["App"]:
    from penstock.app import App

    with closing(App(load_settings(home=home), notify=_notify)) as application:
        if verbose:
            application.log(verbose=True)
        yield application


def _run_sql(text: str, *, home: Path | None, output: Format, verbose: bool) -> None:
    from penstock.cli.printing import print_result
    from penstock.control.execute import execute
    from penstock.sql.parser import parse_script

    statements = parse_script(text)
    with _opened(home, verbose=verbose) as application:
        for parsed in statements:
            result = execute(parsed.statement, services=application.services())
            if verbose:
                import structlog

                kind = type(parsed.statement).__name__
                structlog.get_logger().debug("statement executed", kind=kind)
            print_result(result, output="vertical" if parsed.vertical else output)


def _notify(line: str) -> None:
    """Print a line to standard error if standard error is a terminal."""
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
            help="Stop when all data that existed at the start is loaded.",
        ),
    ] = False,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="NAME",
            help="Run only this job; can be repeated.",
            autocompletion=_complete_job,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", help="Stop after this time: 90s, 5m, 1h."
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Run jobs in the foreground and show their progress.

    Ctrl-C commits or aborts the current epochs and stops. Press Ctrl-C twice to stop at once.
    The exit code is 1 after a failure, 130 after Ctrl-C, and 0 otherwise.
    """
    from penstock.model.options import parse_duration

    with _errors_printed():
        from penstock.app import App
        from penstock.cli.run import Request, run_jobs

        gc.enable()
        limit = None if timeout is None else parse_duration(timeout, what="--timeout")
        with closing(App(load_settings(home=context.obj), command="run")) as application:
            request = Request(
                names=tuple(job or ()),
                until_caught_up=until_caught_up,
                timeout=limit,
                verbose=verbose,
            )
            raise typer.Exit(run_jobs(application, request))


@contextmanager
def _errors_printed(*, script: str = "") -> Iterator[None]:
    """Print an error, with its place in the script, to standard error and exit with 1."""
    try:
        yield
    except BrokenPipeError as error:
        # The reader of the output has exited, as in `| head`. Print no error.
        sys.stderr.close()
        raise typer.Exit(EXIT_FAILED) from error
    except (PenstockError, OSError) as error:
        from penstock.cli.prompt.display import error_text

        if isinstance(error, OSError):
            text = error_text(ExternalError(str(error), code=Code.STORAGE_ERR))
        else:
            text = error_text(error, script=script)
        sys.stderr.write(text)
        raise typer.Exit(EXIT_FAILED) from error


@app.command(epilog="Example: penstock doctor --quick")
def doctor(
    context: typer.Context,
    *,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", metavar="", help="Do not start Spark or connect to buckets and streams."
        ),
    ] = False,
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Format of the report.")
    ] = "text",
) -> None:
    """Check Python, Java, Spark, the home, credentials and jobs; suggest the next command.

    Changes nothing. To test a warehouse in a bucket, doctor writes and deletes a small object.
    The exit code is 1 if there is a problem.
    """
    with _errors_printed():
        from penstock.cli.doctor.examine import run_doctor

        raise typer.Exit(run_doctor(context.obj, quick=quick, output=output))


@app.command(epilog="Example: penstock init /srv/penstock")
def init(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Home folder to create.", show_default="--home, or ./penstock-home"
        ),
    ] = None,
) -> None:
    """Create a home folder with a settings file that explains every setting."""
    with _errors_printed():
        typer.echo(create_home(folder or context.obj))


def main() -> None:
    """Run the command line."""
    # A statement ends before garbage collection pays off. A run enables the collector again.
    gc.disable()
    app()


def create_home(given: Path | None) -> str:
    """Create the home and its settings file; return the text to print."""
    home = home_folder(given)
    path = home / FILE_NAME
    another = "Choose another folder: penstock init FOLDER."
    try:
        home.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_file())
    except FileExistsError as error:
        message, hint = f'home "{home}" cannot be created: it is a file', another
        if path.exists():
            message = f'settings file "{path}" exists and was not changed'
            hint = "Edit the file, or delete it and run penstock init again."
        raise UserError(message, code=Code.ALREADY_EXISTS_ERR, hint=hint) from error
    except OSError as error:
        message = f'home "{home}" cannot be created: {error.strerror}'
        raise ExternalError(message, code=Code.STORAGE_ERR, hint=another) from error
    meaning_by_step = {
        "doctor": "check this machine",
        "sql   ": "create a table and a job",
        "run   ": "run the jobs until Ctrl-C",
    }
    penstock = command_for(home)
    steps = [f"  {penstock} {step}  # {why}" for step, why in meaning_by_step.items()]
    created = f"created {home} with {FILE_NAME}, which explains every setting"
    return "\n".join([created, "", "Next:", *steps])
