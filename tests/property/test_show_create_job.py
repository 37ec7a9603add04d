"""SHOW CREATE JOB prints a statement that creates the same job."""

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unicodedata import category

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalog.catalog import TableRecord
from penstock.control.clauses import statement_of
from penstock.control.define import define_job
from penstock.control.execute import Services
from penstock.errors import Code, UserError
from penstock.model.events import Event, apply
from penstock.model.job import JobDefinition
from penstock.model.schema import Column, Primitive, columns_sql
from penstock.model.split import Progress
from penstock.model.text import quoted_text
from penstock.sources.files.kind import FILES
from penstock.sources.registry import source_options, source_ref
from penstock.sources.source import ShowRequest
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob
from tests.contract.catalog.building import JOB, START, created
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

TABLE = TableRecord(
    name="t",
    id="table-1",
    location="/warehouse/t",
    managed=True,
    comment="",
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
)
CREATED = apply(None, Event(job_id=JOB, number=1, at=START, body=created()))
TRICKY = "ab'\"`\\;-/*#{}()=, \n\té😀%_n0."

texts = st.text(st.sampled_from(TRICKY), max_size=12) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
keys = texts.map(lambda text: "k" + "".join(c for c in text if category(c) != "Cc"))
scalars = st.integers(-5, 2**64) | st.floats(-1e9, 1e9) | texts | st.booleans() | st.none()


def records_with(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for nested records whose keys do not differ only in case."""

    def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        pairs = st.tuples(names, inner)
        return st.lists(pairs, min_size=1, max_size=3, unique_by=lambda p: p[0].lower()).map(
            dict
        )

    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=1) | objects(inner), max_leaves=3
    )
    return objects(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatement:
    """A CREATE JOB statement without its source folder."""

    record: dict[str, Any]
    fields: list[str]
    tail: str
    head: str
    columns_listed: bool
    options: dict[str, str]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a table that can store every field."""
        return tuple(
            Column(name=f"c{number}", type=Primitive.STRING)
            for number in range(len(self.fields))
        )

    def sql(self, folder: Path) -> str:
        """Return the statement, with its source folder."""
        listing = f"({', '.join(c.name for c in self.columns)})" if self.columns_listed else ""
        items = ", ".join(f"`{field.replace('`', '``')}` AS a" for field in self.fields)
        source = {"uri": f"file://{folder}/*.json", "format": "json", **self.options}
        insert = f"INSERT INTO t {listing} SELECT {items}"
        return f"{self.head} DO {insert} FROM FILES({listed(source)}){self.tail}"


intervals = st.integers(1, 10_000).map(lambda n: f"{n}s") | st.sampled_from(
    ["1", "1.5h", "90s", "2m", "1d", "1.25s"]
)
sizes = st.integers(1, 10 * 2**30).map(str) | st.sampled_from(["256MB", "1GiB", "10GB", "1k"])
offsets = texts.map(lambda text: json.dumps({"fileName": f"/f{text}"}))
optional = {
    "s3.max_batch_files": st.integers(1, 10**9).map(str),
    "s3.max_batch_bytes": sizes,
    "offset": offsets,
    "__owner": texts,
    "__a 'b'": texts,
}
properties = st.fixed_dictionaries({}, optional={"max_interval": intervals, **optional})
changes = st.fixed_dictionaries({"max_interval": intervals}, optional=optional)


@st.composite
def job_statements(draw: st.DrawFn) -> JobStatement:
    """Draw a job that fills text columns from some fields of a record."""
    record = {"plain": draw(scalars), **draw(records_with(keys))}
    fields = [key for key, value in record.items() if not isinstance(value, dict | list)]
    given_properties = draw(properties)
    clause = f"PROPERTIES({listed(given_properties)})" if given_properties else ""
    return JobStatement(
        record=record,
        fields=draw(st.lists(st.sampled_from(fields), min_size=1, max_size=3)),
        head=f"CREATE JOB j {clause} ON STREAMING COMMENT {quoted_text(draw(texts))}",
        tail=draw(st.sampled_from(["", " AS s", " -- the end", "  /* ; */"])),
        columns_listed=draw(st.booleans()),
        options=draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "late_files": st.sampled_from(["load", "ignore"]),
                    "modified_files": st.sampled_from(["ignore", "fail", "FAIL"]),
                },
            )
        ),
    )


def listed(pairs: dict[str, str]) -> str:
    """Return keys and values in the syntax of a statement."""
    return ", ".join(f"{quoted_text(k)} = {quoted_text(v)}" for k, v in pairs.items())


def shown(definition: JobDefinition, progress: Progress) -> str:
    """Return the statement that SHOW CREATE JOB prints for a definition."""
    state = replace(CREATED, definition=definition, progress=progress)
    source = FILES.show(ShowRequest(state=state, memory="", at=START))
    return format_statement(statement_of(state, start=source.start))


def defined(text: str, columns: tuple[Column, ...]) -> tuple[JobDefinition, Progress]:
    """Return the definition and the start progress of a statement."""
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateJob)
    # No option is a reference and no SELECT needs Spark, so no service is used.
    services = cast("Services", SimpleNamespace(vault=None, clock=None))
    defined_job = define_job(parsed.statement, table=TABLE, columns=columns, services=services)
    assert defined_job.secret is None
    assert defined_job.progress is not None
    return defined_job.definition, defined_job.progress


def assert_same_except_schema(again: JobDefinition, first: JobDefinition) -> None:
    """Assert equal definitions, except for the schema that SHOW CREATE adds."""
    call = slice(first.select_source_start, first.select_source_end)
    assert first.select[call] == "FILES()"
    given = replace(source_options(first.source), schema=columns_sql(first.source_columns))
    assert again == replace(first, source=source_ref(FILES, given))


@settings(deadline=None, max_examples=400)
@given(statement=job_statements())
def test_show_create_job_defines_the_same_job(statement: JobStatement) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [statement.record])
        first, start = defined(statement.sql(Path(name)), statement.columns)
        text = shown(first, start)

        again, start_again = defined(text, statement.columns)

    assert start_again == start
    assert_same_except_schema(again, first)
    assert shown(again, start_again) == text


@settings(deadline=None, max_examples=150)
@given(fields=st.lists(keys, min_size=1, max_size=4, unique_by=str.lower), data=st.data())
def test_show_create_job_prints_a_star_as_a_star(
    fields: list[str], data: st.DataObject
) -> None:
    columns = tuple(Column(name=field, type=Primitive.STRING) for field in fields)
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [{field: data.draw(scalars) for field in fields}])
        source = listed({"uri": f"file://{name}/", "format": "json"})
        job = "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM FILES"
        first, start = defined(f"{job}({source})", columns)

        again, _ = defined(shown(first, start), columns)

    assert [target.path for target in first.targets] == [(field,) for field in fields]
    assert_same_except_schema(again, first)


@settings(deadline=None, max_examples=300)
@given(record=records_with(texts))
def test_create_refuses_fields_that_show_create_cannot_print(record: dict[str, Any]) -> None:
    columns = (Column(name="c", type=Primitive.STRING),)
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [{"plain": 1, **record}])
        statement = JobStatement(
            record=record,
            fields=["plain"],
            head="CREATE JOB j ON STREAMING",
            tail="",
            columns_listed=False,
            options={},
        )
        try:
            first, start = defined(statement.sql(Path(name)), columns)
        except UserError as error:
            refusal = error
        else:
            again, _ = defined(shown(first, start), columns)
            assert again.source_columns == first.source_columns
            return
    assert refusal.code is Code.TYPE_ERR
    assert 'the option "schema"' in refusal.hint


@settings(deadline=None, max_examples=15)
@given(created=properties, changed=changes)
def test_show_create_job_defines_the_current_job_after_progress_and_alter(
    created: dict[str, str], changed: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        write_rows(folder / "a.json", numbered(1))
        node = Node(Path(name) / "home")
        node.sql(f"{CREATE_TABLE}; {with_properties(create_job(folder), created)}")
        node.run()
        node.sql("PAUSE JOB j")
        with suppress(UserError):
            # An ALTER without a change is refused, and the job stays the same.
            node.sql(f"ALTER JOB j PROPERTIES({listed(changed)})")
        before = node.job("j")

        text = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.sql(f"DROP JOB j; {text}")

        after = node.job("j")
        text_again = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.catalog.close()
    assert text_again == text
    assert after.progress[0].floor == before.progress[0].floor
    assert_same_except_schema(after.definition, replace(before.definition, revision=1))


def with_properties(job: str, pairs: dict[str, str]) -> str:
    """Add properties to a CREATE JOB statement that has none."""
    clause = f"PROPERTIES({listed(pairs)}) " if pairs else ""
    return job.replace("ON STREAMING", f"{clause}ON STREAMING", 1)
