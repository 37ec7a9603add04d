"""SHOW CREATE JOB writes the statement that makes the same job, whatever is in it."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.catalog.tables import TableRecord
from penstock.control.definition import define_job
from penstock.control.wording import statement_of
from penstock.errors import UserError
from penstock.model.job import JobDefinition
from penstock.model.position import Position
from penstock.model.schema import Column, Primitive, columns_sql, quoted_name, quoted_text
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob
from tests.node import write_rows

TABLE = TableRecord(
    name="t",
    id="table-1",
    location="/warehouse/t",
    managed=True,
    comment="",
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
)
TRICKY = "ab'\"`\\;-/*#{}()=, \n\té😀%_n0."

texts = st.text(st.sampled_from(TRICKY), max_size=12) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=12
)
simple_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
keys = simple_names | texts
values: st.SearchStrategy[Any] = st.recursive(
    st.integers(-5, 2**64) | st.floats(allow_nan=False, allow_infinity=False) | texts
    | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
records = st.dictionaries(keys, values, min_size=1, max_size=4)

intervals = st.integers(1, 10_000).map(lambda n: f"{n}s") | st.sampled_from(
    ["1", "1.5h", "90s", "2m", "1d", "1.25s"]
)
sizes = st.integers(1, 10 * 2**30).map(str) | st.sampled_from(["256MB", "1GiB", "10GB", "1k"])
offsets = texts.filter(lambda text: text.strip("/")).map(
    lambda text: json.dumps({"fileName": "/" + text})
)
metadata_keys = texts.map(lambda text: "__" + text)
properties = st.fixed_dictionaries(
    {},
    optional={
        "max_interval": intervals,
        "s3.max_batch_files": st.integers(1, 10**9).map(str),
        "s3.max_batch_bytes": sizes,
        "offset": offsets,
    },
)
metadata = st.dictionaries(metadata_keys, texts, max_size=2)
options = st.fixed_dictionaries(
    {},
    optional={
        "late_files": st.sampled_from(["load", "ignore"]),
        "modified_files": st.sampled_from(["ignore", "fail", "FAIL"]),
    },
)


@contextmanager
def source_folder(record: dict[str, Any]) -> Iterator[Path]:
    """Give a folder with one file of one record."""
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [record])
        yield Path(name)


def listed(pairs: dict[str, str]) -> str:
    return ", ".join(
        f"{quoted_text(key)} = {quoted_text(value)}" for key, value in pairs.items()
    )


def written(definition: JobDefinition, floor: Position) -> str:
    return format_statement(statement_of(definition, floor=floor))


def defined(text: str, columns: tuple[Column, ...]) -> tuple[JobDefinition, Position]:
    """Read a statement and answer what it defines."""
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateJob)
    return define_job(parsed.statement, table=TABLE, columns=columns)


def text_columns(count: int) -> tuple[Column, ...]:
    """Answer columns that take nearly every field."""
    return tuple(Column(name=f"c{number}", type=Primitive.STRING) for number in range(count))


@st.composite
def statements(draw: st.DrawFn, record: dict[str, Any], folder: Path) -> str:
    """Draw a CREATE JOB that fills text columns from some fields of the record."""
    fields = draw(st.lists(st.sampled_from(sorted(record)), min_size=1, max_size=3))
    aliases = [draw(st.none() | simple_names) for _ in fields]
    assume(all(field.strip() and field.isprintable() for field in fields))
    items = ", ".join(
        f"`{field.replace('`', '``')}`" + (f" AS {quoted_name(alias)}" if alias else "")
        for field, alias in zip(fields, aliases, strict=True)
    )
    given_properties = listed({**draw(properties), **draw(metadata)})
    source = {"uri": f"file://{folder}/*.json", "format": "json", **draw(options)}
    clause = f"PROPERTIES({given_properties})" if given_properties else ""
    comment = f"COMMENT {quoted_text(draw(texts))}"
    columns = draw(
        st.sampled_from(["", f"({', '.join(c.name for c in text_columns(len(fields)))})"])
    )
    tail = draw(st.sampled_from(["", " AS s", " -- the end", "  /* ; */"]))
    function = draw(st.sampled_from(["FILES", "files", "S3"]))
    return (
        f"CREATE JOB `{draw(simple_names)}` {clause} ON STREAMING {comment} DO "  # noqa: S608
        f"INSERT INTO t {columns} SELECT {items} FROM {function}({listed(source)}){tail}"
    )


@settings(deadline=None, max_examples=100)
@given(data=st.data(), record=records)
def test_what_is_shown_defines_the_same_job(
    data: st.DataObject, record: dict[str, Any]
) -> None:
    with source_folder(record) as folder:
        text = data.draw(statements(record, folder))
        columns = text_columns(text.split(" FROM ")[0].count(", ") + 1)
        try:
            first, floor = defined(text, columns)
        except UserError:
            assume(False)  # noqa: FBT003 - A statement that is refused defines nothing.

        again, floor_again = defined(written(first, floor), columns)

    schema = columns_sql(first.source_columns)
    assert floor_again == floor
    assert again.source == replace(first.source, schema=schema)
    assert same_select(again, first) == replace(first, source=again.source)


def same_select(again: JobDefinition, first: JobDefinition) -> JobDefinition:
    """Answer the definition with the other's text, if only the source's call differs."""
    assert (
        again.select[: again.select_source_start] == first.select[: first.select_source_start]
    )
    assert again.select[again.select_source_end :] == first.select[first.select_source_end :]
    return replace(again, select=first.select, select_source_end=first.select_source_end)


altered = properties.filter(bool)


@settings(deadline=None, max_examples=12)
@given(created=properties, changed=altered, more=metadata)
def test_what_is_shown_after_progress_and_alter_defines_the_job_as_it_is_now(
    created: dict[str, str], changed: dict[str, str], more: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        write_rows(folder / "a.json", numbered(1))
        node = Node(Path(name) / "home")
        node.sql(f"{CREATE_TABLE}; {with_properties(create_job(folder), created)}")
        node.run()
        node.sql("PAUSE JOB j")
        with suppress(UserError):
            # An ALTER that changes nothing is refused, which leaves the job as it is.
            node.sql(f"ALTER JOB j PROPERTIES({listed({**changed, **more})})")
        before = node.job("j")

        text = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.sql(f"DROP JOB j; {text}")

        after = node.job("j")
        shown_again = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.catalog.close()
    assert shown_again == text
    assert after.progress[0].floor == before.progress[0].floor
    assert after.definition.source_columns == before.definition.source_columns
    assert after.definition == replace(
        same_select(before.definition, after.definition),
        revision=1,
        source=after.definition.source,
    )


def with_properties(job: str, pairs: dict[str, str]) -> str:
    """Put properties into a CREATE JOB that has none."""
    clause = f"PROPERTIES({listed(pairs)}) " if pairs else ""
    return job.replace("ON STREAMING", f"{clause}ON STREAMING", 1)
