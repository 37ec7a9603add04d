"""The command line without Spark: statements, formats, exit codes, settings."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import Code
from tests.error_values import assert_names, assert_printed
from tests.integration.command import Shell
from tests.node import CREATE_TABLE, create_job, numbered, write_rows


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_successful_statement_exits_with_zero_and_prints_its_message(shell: Shell) -> None:
    result = shell.sql(CREATE_TABLE)

    assert (result.code, result.out, result.error) == (0, "table t created\n", "")
    assert (shell.folder / "penstock-home" / "catalog.db").is_file()


def test_an_error_exits_with_one_and_prints_code_message_detail_and_hint(shell: Shell) -> None:
    result = shell.sql("SHOW TABLES; CREATE JOB j DO INSERT")

    assert result.code == 1
    assert result.out == ""
    first, detail, written, caret, hint = result.error.splitlines()
    assert_printed(first, Code.SYNTAX_ERR, "ON STREAMING", '"DO"')
    assert detail == "  detail: Line 1, column 27."
    assert written == "    SHOW TABLES; CREATE JOB j DO INSERT"
    assert caret == f"    {' ' * 26}^"
    assert hint.startswith("  hint: ")
    assert_names(hint, "CREATE JOB name PROPERTIES(…) ON STREAMING")


def test_an_error_without_detail_prints_no_detail_line(shell: Shell) -> None:
    result = shell.sql("DROP TABLE t")

    assert result.code == 1
    assert_printed(result.error, Code.META_NOT_FOUND_ERR, '"t"', hint=["CREATE TABLE"])
    assert len(result.error.splitlines()) == 2


def test_an_error_in_the_second_statement_keeps_the_effect_of_the_first(shell: Shell) -> None:
    result = shell.sql(f"{CREATE_TABLE}; DROP TABLE other; DROP TABLE t")

    assert (result.code, result.out) == (1, "table t created\n")
    assert_printed(result.error, Code.META_NOT_FOUND_ERR, '"other"')
    assert "t" in shell.sql("SHOW TABLES", "--format", "csv").out.splitlines()[1]


def test_a_script_with_a_syntax_error_runs_no_statement(shell: Shell) -> None:
    result = shell.sql(f"{CREATE_TABLE}; DROP TABEL t")

    assert result.code == 1
    assert shell.sql("SHOW TABLES", "--format", "json").json == [[]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sql", "--format", "xml"], "--format"),
        (["sql", "-e", "SHOW JOBS", "-f", "script.sql"], "-f"),
        (["sql", "-f", "nowhere.sql"], "nowhere.sql"),
        (["sql", "--what"], "--what"),
        (["fly"], "fly"),
        (["run", "--job"], "--job"),
    ],
)
def test_a_wrong_command_line_exits_with_two(
    shell: Shell, arguments: list[str], message: str
) -> None:
    (shell.folder / "script.sql").write_text("SHOW JOBS")

    result = shell.run(*arguments)

    assert (result.code, result.out) == (2, "")
    assert message in result.error
    assert not (shell.folder / "penstock-home").exists()


def test_json_has_one_array_of_objects_for_every_statement(shell: Shell) -> None:
    result = shell.sql(f"{CREATE_TABLE}; DESCRIBE t; SHOW JOBS", "--format", "json")

    assert result.json == [
        [{"message": "table t created"}],
        [
            described("id", "BIGINT", nullable="NO"),
            described("note", "STRING", nullable="YES"),
        ],
        [],
    ]


def described(column: str, kind: str, *, nullable: str) -> dict[str, str]:
    return {
        "column": column,
        "type": kind,
        "nullable": nullable,
        "partition": "NO",
        "comment": "",
    }


def test_csv_has_a_header_and_quotes_values_if_necessary(shell: Shell) -> None:
    result = shell.sql(
        """CREATE TABLE t (id INT COMMENT 'a "b", c'); DESCRIBE t""", "--format", "csv"
    )

    assert list(csv.reader(io.StringIO(result.out))) == [
        ["message"],
        ["table t created"],
        ["column", "type", "nullable", "partition", "comment"],
        ["id", "INT", "YES", "NO", 'a "b", c'],
    ]


def test_a_statement_that_ends_with_g_is_printed_vertically(shell: Shell) -> None:
    result = shell.sql("CREATE TABLE t (id INT); DESCRIBE t\\G DESCRIBE t", "--format", "csv")

    lines = result.out.splitlines()
    assert lines[2:4] == ["************ 1. row ************", "   column: id"]
    assert lines[-2:] == ["column,type,nullable,partition,comment", "id,INT,YES,NO,"]


def test_the_vertical_format_has_one_line_for_every_cell(shell: Shell) -> None:
    result = shell.sql("CREATE TABLE t (id INT); DESCRIBE t", "--format", "vertical")

    assert result.out.splitlines() == [
        "table t created",
        "************ 1. row ************",
        "   column: id",
        "     type: INT",
        " nullable: YES",
        "partition: NO",
        "  comment: ",
        "1 row",
    ]


def test_the_table_format_has_a_header_and_counts_rows(shell: Shell) -> None:
    result = shell.sql(f"{CREATE_TABLE}; DESCRIBE t")

    lines = [line.split() for line in result.out.splitlines()]
    assert ["column", "type", "nullable", "partition", "comment"] in lines
    assert ["id", "BIGINT", "NO", "NO"] in lines
    assert lines[-1] == ["2", "rows"]


def test_the_output_of_show_create_can_be_run_again(
    shell: Shell,
) -> None:
    shown = shell.sql(f"{CREATE_TABLE}; SHOW CREATE TABLE t; DROP TABLE t")
    text = shown.out.split("table t created\n")[1].split("table t dropped")[0]

    result = shell.sql(text)

    assert (result.code, result.out) == (0, "table t created\n")


def test_statements_are_read_from_a_file(shell: Shell) -> None:
    (shell.folder / "script.sql").write_text(f"-- tables\n{CREATE_TABLE};\n\nSHOW TABLES;\n")

    result = shell.run("sql", "-f", "script.sql", "--format", "json")

    assert [len(rows) for rows in result.json] == [1, 1]


def test_statements_are_read_from_standard_input(shell: Shell) -> None:
    result = shell.run("sql", stdin=f"{CREATE_TABLE};\n/* done */\n")

    assert (result.code, result.out) == (0, "table t created\n")


def test_a_script_without_statements_is_not_an_error(shell: Shell) -> None:
    result = shell.run("sql", stdin=" ;; -- nothing\n")

    assert (result.code, result.out, result.error) == (0, "", "")


def test_a_script_that_is_not_utf8_is_rejected(shell: Shell) -> None:
    (shell.folder / "script.sql").write_bytes(b"SHOW TABLES -- \xff\n")

    result = shell.run("sql", "-f", "script.sql")

    assert result.code == 1
    assert_printed(result.error, Code.SYNTAX_ERR, "U+DCFF", hint=["UTF-8"])


def test_the_home_comes_from_the_flag_then_the_environment_then_the_default(
    shell: Shell,
) -> None:
    shell.run("--home", "one", "sql", "-e", CREATE_TABLE, environment={"PENSTOCK_HOME": "two"})
    shell.run("sql", "-e", CREATE_TABLE, environment={"PENSTOCK_HOME": "two"})
    shell.run("sql", "-e", CREATE_TABLE)

    homes = sorted(path.parent.name for path in shell.folder.glob("*/catalog.db"))
    assert homes == ["one", "penstock-home", "two"]


def location(shell: Shell) -> Path:
    """Create a table; return the parent folder of its location."""
    result = shell.sql(f"{CREATE_TABLE}; SHOW TABLES", "--format", "json")
    return Path(result.json[1][0]["location"]).parent


def write_settings(shell: Shell, text: str) -> None:
    home = shell.folder / "penstock-home"
    home.mkdir()
    (home / "penstock.toml").write_text(text)


def test_tables_are_created_in_the_home_by_default(shell: Shell) -> None:
    assert location(shell) == shell.folder / "penstock-home" / "warehouse"


def test_the_settings_file_sets_the_warehouse(shell: Shell) -> None:
    write_settings(shell, f'warehouse = "{shell.folder}/from-file"')

    assert location(shell) == shell.folder / "from-file"


def test_the_environment_overrides_the_settings_file(shell: Shell) -> None:
    write_settings(shell, f'warehouse = "{shell.folder}/from-file"')

    shell.environment["PENSTOCK_WAREHOUSE"] = f"{shell.folder}/from-environment"

    assert location(shell) == shell.folder / "from-environment"


def test_the_catalog_can_be_stored_elsewhere(shell: Shell) -> None:
    write_settings(shell, f'[catalog]\nurl = "sqlite:///{shell.folder}/elsewhere.db"')

    shell.sql(CREATE_TABLE)

    assert (shell.folder / "elsewhere.db").is_file()
    assert not (shell.folder / "penstock-home" / "catalog.db").exists()


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("warehose = 'x'", Code.SETTINGS_ERR, '"warehose"'),
        ("[spark]\nmasters = 'local'", Code.SETTINGS_ERR, '"spark.masters"'),
        ("[spark]\nmaster = 3", Code.SETTINGS_ERR, '"spark.master"'),
        ("warehouse = ", Code.SETTINGS_ERR, "penstock.toml"),
        ("[catalog]\nurl = 'postgresql://host/db'", Code.CATALOG_ERR, "SQLite"),
        ("[catalog]\nurl = 'somewhere'", Code.CATALOG_ERR, "sqlite:///path"),
    ],
)
def test_a_wrong_setting_is_rejected_by_name(
    shell: Shell, *, text: str, code: Code, named: str
) -> None:
    write_settings(shell, text)

    result = shell.sql("SHOW TABLES")

    assert (result.code, result.out) == (1, "")
    assert_printed(result.error, code, named)


def test_a_wrong_setting_in_the_environment_is_rejected_by_name(shell: Shell) -> None:
    result = shell.run(
        "sql", "-e", "SHOW TABLES", environment={"PENSTOCK_SPARK__MASTERS": "local"}
    )

    assert result.code == 1
    assert_printed(result.error, Code.SETTINGS_ERR, '"spark.masters"')


def test_a_home_that_cannot_be_created_is_reported(shell: Shell) -> None:
    (shell.folder / "taken").touch()

    result = shell.run("--home", "taken", "sql", "-e", "SHOW TABLES")

    assert result.code == 1
    hint = ("--home", "PENSTOCK_HOME")
    assert_printed(result.error, Code.STORAGE_ERR, f'"{shell.folder}/taken"', hint=hint)


def test_a_file_that_is_not_a_catalog_is_rejected_and_kept(shell: Shell) -> None:
    home = shell.folder / "penstock-home"
    home.mkdir()
    (home / "catalog.db").write_text("these are my notes, not a database; " * 100)

    result = shell.sql("SHOW TABLES")

    assert result.code == 1
    assert result.error.startswith("error CATALOG_ERR: ")
    assert (home / "catalog.db").read_text().startswith("these are my notes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["--home", "PENSTOCK_HOME", "sql", "run", "exactly once"]),
        (["sql", "--help"], ["CREATE", "EVENTS FOR", "--format", 'penstock sql -e "SHOW']),
        (["run", "-h"], ["--until-caught-up", "--job", "--timeout", "Ctrl-C", "Example: "]),
    ],
)
def test_help_lists_options_and_statements(
    shell: Shell, arguments: list[str], words: list[str]
) -> None:
    result = shell.run(*arguments)

    assert result.code == 0
    assert [word for word in words if word not in result.out] == []


def test_a_run_without_jobs_is_caught_up(shell: Shell) -> None:
    result = shell.run("run", "--until-caught-up")

    assert (result.code, result.error) == (0, "")


def test_a_run_of_an_unknown_job_is_rejected_with_the_known_jobs(
    shell: Shell, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")

    result = shell.run("run", "--job", "k")

    assert (result.code, result.out) == (1, "")
    assert_printed(result.error, Code.META_NOT_FOUND_ERR, 'job "k"', hint=["j"])


@pytest.mark.parametrize("timeout", ["soon", "-5s", "5 parsecs"])
def test_a_timeout_that_is_not_a_duration_is_rejected(shell: Shell, timeout: str) -> None:
    result = shell.run("run", "--until-caught-up", f"--timeout={timeout}")

    assert result.code == 1
    assert_printed(result.error, Code.OPTION_ERR, "--timeout", f'"{timeout}"')


def test_a_run_names_and_skips_a_job_that_a_user_paused(shell: Shell, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}; PAUSE JOB j")

    result = shell.run("run", "--until-caught-up")

    assert result.code == 0
    assert_names(result.error, "job j", "paused")
    assert_names(result.out.splitlines()[-1], "j: paused", "0 files, 0 rows")


def test_statements_about_a_job_do_not_need_a_run(shell: Shell, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")

    result = shell.sql(
        "PAUSE JOB WHERE jobname = 'j'; ALTER JOB j PROPERTIES('max_interval' = '3s');"
        "RESUME JOB j; SHOW JOBS; SHOW EPOCHS FOR j; SHOW EVENTS FOR j; DROP JOB j; SHOW JOBS",
        "--format",
        "json",
    )

    assert result.code == 0
    jobs = result.json[3]
    assert [(job["name"], job["state"]) for job in jobs] == [("j", "PENDING")]
    assert [row["kind"] for row in result.json[4]] == ["opening", "fence", "fence"]
    assert result.json[-1] == []


@pytest.mark.parametrize("count", [1, 2000])
def test_a_closed_output_pipe_prints_no_traceback(shell: Shell, count: int) -> None:
    shell.sql(CREATE_TABLE)
    reader, writer = os.pipe()
    os.close(reader)

    result = shell.run("sql", "-e", ";".join(["SHOW JOBS"] * count), stdout=writer)

    os.close(writer)
    assert (result.code, result.error) == (1, "")


LATE_LIBRARIES = ["pyspark", "pyarrow", "alembic", "deltalake", "pandas", "numpy"]


@pytest.mark.parametrize("statement", ["SHOW JOBS", "SHOW TABLES", "SHOW EVENTS FOR j"])
def test_a_show_statement_imports_no_heavy_library(
    shell: Shell, tmp_path: Path, statement: str
) -> None:
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")
    program = f"""
import json, sys
sys.argv = ["penstock", "sql", "-e", {statement!r}, "--format", "json"]
from penstock.cli.main import main
try:
    main()
except SystemExit as end:
    loaded = sorted({{name.split(".")[0] for name in sys.modules}})
    print(json.dumps([end.code, loaded]))
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    code, loaded = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert "sqlalchemy" in loaded
    assert [name for name in LATE_LIBRARIES if name in loaded] == []
