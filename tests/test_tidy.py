"""The rules of the house that a command can check."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TypeGuard

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from penstock.model.job_kinds import JobProperties
from penstock.model.options import option_fields, option_key
from penstock.sources.files.kind import FilesOptions
from tests.prose import files_of, texts_of

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = [path for path in SOURCES if path.name != "__init__.py"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 600
FUNCTION_LINES_MAX = 50
VAGUE = {"utils", "util", "base", "helper", "helpers", "common", "misc", "manager", "tools"}
VAGUE_CLASS = re.compile(r"(Manager|Helper|Util|Utils|Mixin|Base)$")
TEST_FOLDERS = ("unit", "property", "contract", "scripts", "crash", "integration", "docs")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_module_is_short_has_a_docstring_and_a_clear_name(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)

    assert len(text.splitlines()) <= LINES_MAX
    assert ast.get_docstring(tree)
    assert path.stem not in VAGUE


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_functions_are_short_and_classes_are_named_after_things(path: Path) -> None:
    tree = ast.parse(path.read_text())

    long = [f.name for f in functions(tree) if length(f) > FUNCTION_LINES_MAX]
    vague = [c.name for c in ast.walk(tree) if isinstance(c, ast.ClassDef)]

    assert not long
    assert not [name for name in vague if VAGUE_CLASS.search(name)]


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def length(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


# The maxima only fall: lower a number here when the code allows it.
MODULES_MAX = 212
SINGLE_IMPORTERS_MAX = 41
KIND_NAMERS_MAX = 3
# The words by which a source kind is known, outside of its package.
KIND_WORDS = re.compile(r"(?i:kinesis|kafka|datagen)|FilesOptions|\bFILES\b|sources\.files")


def test_there_are_no_more_modules_than_before() -> None:
    assert len(SOURCES) <= MODULES_MAX


def test_no_more_modules_than_before_have_a_single_importer() -> None:
    importers = importers_by_module()

    assert sum(len(found) == 1 for found in importers.values()) <= SINGLE_IMPORTERS_MAX


def importers_by_module() -> dict[str, set[str]]:
    """Return which modules of the product import each of them."""
    modules = {module_name(path): path for path in MODULES}
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = {f"{node.module}.{alias.name}" for alias in node.names}
                for target in found.keys() & {node.module, *named}:
                    found[target].add(name)
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def test_no_more_modules_than_before_name_a_source_kind() -> None:
    product = ROOT / "src" / "penstock"
    outside = [
        p for p in MODULES if p.relative_to(product).parts[0] not in ("sources", "testing")
    ]

    naming = [shown(path) for path in outside if KIND_WORDS.search(path.read_text())]

    assert len(naming) <= KIND_NAMERS_MAX, naming


@pytest.mark.parametrize(
    "layer", ["model", "engine", "epochs", "tables", "catalog", "supervisor"]
)
def test_layers_below_control_name_no_source_kind(layer: str) -> None:
    modules = sorted((ROOT / "src" / "penstock" / layer).rglob("*.py"))

    assert not [shown(path) for path in modules if KIND_WORDS.search(path.read_text())]


@pytest.mark.parametrize(
    "folder",
    [
        "src",
        "tests",
        "docs",
        "benchmarks",
        "examples",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        "pyproject.toml",
    ],
)
def test_prose_has_no_word_of_the_old_dialect_and_no_long_sentence(folder: str) -> None:
    texts = [text for path in files_of([ROOT / folder]) for text in texts_of(path)]

    faults = [(shown(t.path), t.line, found) for t in texts if (found := t.faults())]

    assert texts
    assert not faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Answer the rows.", "Answer …"),
        ("Poll the files behind the newest one.", "behind"),
        ("What the job reads.", "What …"),
        ("Of a finished shard no lag is reported.", "Of a …"),
        (" ".join(["word"] * 26), "26 words"),
    ],
)
def test_a_fault_of_prose_is_found(text: str, fault: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'def function():\n    """{text}"""\n')

    assert [found for t in texts_of(module) if (found := t.faults())] == [[fault]]


def test_a_name_of_the_old_dialect_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def count(rowsHeard):\n    told_by = rowsHeard\n")

    assert [found for t in texts_of(module) if (found := t.faults())] == [["heard"], ["told"]]


@pytest.mark.parametrize("text", ["CATALOG_BEHIND_ERR", "MillisBehindLatest", "`make test`"])
def test_names_that_others_chose_are_no_fault(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"See {text}.\n")

    assert [t.faults() for t in texts_of(page)] == [[]]


def test_package_files_hold_a_docstring_and_nothing_else() -> None:
    packages = [path for path in SOURCES if path.name == "__init__.py"]

    crowded = [shown(p) for p in packages if len(ast.parse(p.read_text()).body) != 1]

    assert packages
    assert not crowded


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=shown)
def test_no_exception_is_swallowed_in_silence(path: Path) -> None:
    handlers = [n for n in ast.walk(ast.parse(path.read_text())) if is_handler(n)]

    assert not [h.lineno for h in handlers if isinstance(h.body[0], ast.Pass)]


def is_handler(node: ast.AST) -> TypeGuard[ast.ExceptHandler]:
    return isinstance(node, ast.ExceptHandler)


def test_every_crash_point_is_passed_by_the_product() -> None:
    text = "".join(path.read_text() for path in MODULES if path.name != "crashpoints.py")

    unused = [point.name for point in CrashPoint if f"CrashPoint.{point.name}" not in text]

    assert not unused


def test_every_error_code_is_explained() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()

    assert not [code for code in Code if f"`{code}`" not in text]


def test_every_option_is_explained() -> None:
    text = (ROOT / "docs/reference/options.md").read_text()
    keys = [
        option_key(f) for kind in (JobProperties, FilesOptions) for f in option_fields(kind)
    ]

    assert not [key for key in keys if f"`{key}`" not in text]


def test_the_lock_pins_hashes_and_names_no_registry() -> None:
    text = (ROOT / "requirements.lock").read_text()

    assert "--hash=sha256:" in text
    assert "://" not in text
    assert "index-url" not in text


def test_t14_no_test_is_excluded_by_default() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    excluding = {"-k", "-m", "--ignore", "--deselect", "--ignore-glob"}

    assert not excluding & {word.split("=")[0] for word in settings["addopts"]}
    assert settings["testpaths"] == ["tests"]
    assert "pytest" in (ROOT / "Makefile").read_text()


def test_t14_every_folder_of_tests_is_collected() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]

    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert collected.returncode == 0, collected.stdout[-2000:]
    tests = [line for line in collected.stdout.splitlines() if "::" in line]
    folders = {line.split("/")[1] for line in tests}
    assert folders >= set(TEST_FOLDERS)
