"""Find prose that breaks the rules for plain English.

The rules apply to docstrings, comments, names and texts in quotes of Python files, to Markdown
outside of code blocks, and to each line of other files. Print what breaks them in some files:

    python -m tests.prose src/penstock/control README.md
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Plain words instead: start; create; poll, list, read; after, lag, stale; fix; tolerate;
# remove; truncate; return, report; owner; continue; again.
WORDS = re.compile(
    r"\b(tell(s|ing)?|told|hear(s|d|ing)?|say(s|ing)?|said|lend(s|ing|er)?|lent|believe[sd]?"
    r"|promise[sd]?|wish(es|ed)?|behind|mend(s|ed|ing)?|bear(s|ing)?|bore|borne|who(m)?ever"
    r"|nobody|somebody|anybody|look(s|ed|ing)?(?! up)|begin(s|ning|nings)?|began|begun|made"
    r"|makes?|making|anew|stands|stood|who has it|may not|(go|goes|went|gone) on"
    r"|cut(s|ting)? off|(take|drop)[sn]? away|took away|dropped away|taken? apart)\b",
    re.IGNORECASE,
)
# Names that others chose, code, and commands.
EXCEPTIONS = re.compile(
    r"CATALOG_BEHIND_ERR|MillisBehindLatest|``[^`]+``|`[^`]+`"
    r"|make (demo|docs|setup|test|wheel|\$@)|say \"hi\""
)
# Names of Python's files and of the design.
NAMES = {"tell", "begin", "_BEGIN_MODE", "_LOOK_AHEAD_BYTES"}
CODES = {"CATALOG_BEHIND_ERR", "CHECKPOINT_BEHIND_ERR"}
# The first words of a sentence that puts its subject late, or of a docstring without a verb of
# its trade.
OPENINGS = re.compile(
    r"(?:^|[.;:] |\| )(Of (?:an?|the|one|all|what|every)|What(?:ever)?|Whichever|Whose)\b"
)
DOCSTRING_OPENINGS = re.compile(r"(Answer|Tell|Say|Give|Hear|Be|Let|Have)\b")
SENTENCE_WORDS_MAX = 20
# The start of a list item, or of a row of a table with aligned columns.
_LIST_ITEM = re.compile(r"\n[ \t]*(?=\* |=+|\S.* {2,}\S)")
# Python, documentation, printed results, the Makefile and settings.
SUFFIXES = {".py", ".md", ".out", ".toml", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of prose and where it is."""

    path: Path
    line: int
    text: str
    docstring: bool = False
    # A text in quotes may be SQL, so that its sentences are not counted.
    quoted: bool = False

    def faults(self) -> list[str]:
        """Return what is not allowed: words, openings, and the lengths of long sentences."""
        text = _LIST_ITEM.sub("\n\n", EXCEPTIONS.sub("code", self.text))
        text = re.sub(r"(?<=\S)\n[ \t]*(?=\S)", " ", text)
        # Words in capitals are SQL.
        found = [word[0] for word in WORDS.finditer(text) if not word[0].isupper()]
        found += [opening[1] + " …" for opening in OPENINGS.finditer(text)]
        if self.docstring and (verb := DOCSTRING_OPENINGS.match(text)):
            found.append(verb[0] + " …")
        if self.quoted:
            return found
        counts = [
            len(sentence.split()) for sentence in re.split(r"(?<=[.!?;:]) | \| |\n\s*\n", text)
        ]
        return found + [f"{words} words" for words in counts if words > SENTENCE_WORDS_MAX]


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the prose of a file."""
    content = path.read_text()
    if path.suffix == ".py":
        yield from _comments(path, content)
        yield from _strings(path, ast.parse(content))
    elif path.suffix == ".md":
        yield from _paragraphs(path, content)
    else:
        for number, line in enumerate(content.splitlines(), start=1):
            yield Text(path=path, line=number, text=line, quoted=True)


def _comments(path: Path, content: str) -> Iterator[Text]:
    lines: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != first + len(lines):
            yield Text(path=path, line=first, text=" ".join(lines))
            lines = []
        first = first if lines else token.start[0]
        lines.append(token.string.lstrip("#! "))
    if lines:
        yield Text(path=path, line=first, text=" ".join(lines))


def _strings(path: Path, tree: ast.Module) -> Iterator[Text]:
    docstrings = {id(node): of_function for node, of_function in _docstrings(tree)}
    parts: set[int] = set()
    for node in ast.walk(tree):
        yield from _name(path, node)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_").replace("_", " ")
            yield Text(path=path, line=node.lineno, text=name)
        elif isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            values = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield Text(path=path, line=node.lineno, text="".join(map(str, values)), quoted=True)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                of_function = docstrings[id(node)]
                yield Text(path=path, line=node.lineno, text=node.value, docstring=of_function)
            elif id(node) not in parts and " " in node.value.strip():
                yield Text(path=path, line=node.lineno, text=node.value, quoted=True)


def _name(path: Path, node: ast.AST) -> Iterator[Text]:
    """Yield the words of a name that the node defines; tests are sentences."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            pass
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            pass
        case _:
            return
    if name not in NAMES | CODES and not name.startswith("test_"):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).lower()
        yield Text(path=path, line=getattr(node, "lineno", 0), text=words, quoted=True)


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.expr, bool]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield first.value, isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _paragraphs(path: Path, content: str) -> Iterator[Text]:
    fenced = False
    lines: list[str] = []
    for number, line in enumerate([*content.splitlines(), ""], start=1):
        fence = line.lstrip().startswith("```")
        if lines and (fence or not line.strip() or re.match(r"\s*([*|#>-]|\d+\.) ", line)):
            text = re.sub(r"\]\([^)]*\)|\*\*", "", " ".join(lines)).strip("*#>|- ")
            yield Text(path=path, line=number - len(lines), text=text)
            lines = []
        if fence:
            fenced = not fenced
        elif not fenced and line.strip():
            lines.append(line.strip())


def files_of(roots: Iterable[Path]) -> list[Path]:
    """Return the files with prose in the folders, and the files that are named themselves."""
    found = [
        path for root in roots for path in ([root] if root.is_file() else root.rglob("*.*"))
    ]
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES and path.name not in ("prose.py", "test_tidy.py")
    )


if __name__ == "__main__":
    hits = [
        (text, faults)
        for path in files_of(map(Path, sys.argv[1:]))
        for text in texts_of(path)
        if (faults := text.faults())
    ]
    for text, faults in hits:
        print(f"{text.path}:{text.line}: {', '.join(faults)}: {' '.join(text.text.split())}")  # noqa: T201
    sys.exit(bool(hits))
