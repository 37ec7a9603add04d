"""SHOW CREATE JOB writes the statement that makes the same job, whatever is in it."""

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
from tests.contract.catalog.building import BEGINNING, JOB, created
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

TABLE = TableRecord(
    name="t",
    id="table-1",
    location="/warehouse/t",
    managed=True,
    comment="",
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
)
CREATED = apply(None, Event(job_id=JOB, number=1, at=BEGINNING, body=created()))
TRICKY = "ab'\"`\\;-/*#{}()=, \n\té😀%_n0."

texts = st.text(st.sampled_from(TRICKY), max_size=12) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
keys = texts.map(lambda text: "k" + "".join(c for c in text if category(c) != "Cc"))
scalars = st.integers(-5, 2**64) | st.floats(-1e9, 1e9) | texts | st.booleans() | st.none()


def records_with(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Answer records with nested objects and lists, whose keys differ more than in case."""

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
class Said:
    """A CREATE JOB, but for the folder that it reads."""

    record: dict[str, Any]
    fields: list[str]
    tail: str
    head: str
    columns_listed: bool
    options: dict[str, str]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a table that take every field."""
        return tuple(
            Column(name=f"c{number}", type=Primitive.STRING)
            for number in range(len(self.fields))
        )

    def sql(self, folder: Path) -> str:
        """Write the statement."""
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
def sayings(draw: st.DrawFn) -> Said:
    """Draw a job that fills text columns from some fields of a record."""
    record = {"plain": draw(scalars), **draw(records_with(keys))}
    fields = [key for key, value in record.items() if not isinstance(value, dict | list)]
    given_properties = draw(properties)
    clause = f"PROPERTIES({listed(given_properties)})" if given_properties else ""
    return Said(
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
    """Write keys and values as a statement takes them."""
    return ", ".join(f"{quoted_text(k)} = {quoted_text(v)}" for k, v in pairs.items())


def shown(definition: JobDefinition, progress: Progress) -> str:
    """Write a definition as SHOW CREATE JOB does."""
    state = replace(CREATED, definition=definition, progress=progress)
    source = FILES.show(ShowRequest(state=state, memory="", at=BEGINNING))
    return format_statement(statement_of(state, start=source.start))


def defined(text: str, columns: tuple[Column, ...]) -> tuple[JobDefinition, Progress]:
    """Read a statement and return what it defines."""
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateJob)
    # No option is a reference, no SELECT needs Spark or another table: nothing is asked.
    services = cast("Services", SimpleNamespace(vault=None, clock=None))
    made = define_job(parsed.statement, table=TABLE, columns=columns, services=services)
    assert made.secret is None
    assert made.progress is not None
    return made.definition, made.progress


def assert_same_but_for_the_schema(again: JobDefinition, first: JobDefinition) -> None:
    """Require equal definitions, but for the schema that was inferred and is given now."""
    call = slice(first.select_source_start, first.select_source_end)
    assert first.select[call] == "FILES()"
    given = replace(source_options(first.source), schema=columns_sql(first.source_columns))
    assert again == replace(first, source=source_ref(FILES, given))


@settings(deadline=None, max_examples=400)
@given(said=sayings())
def test_what_is_shown_defines_the_same_job(said: Said) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [said.record])
        first, start = defined(said.sql(Path(name)), said.columns)
        text = shown(first, start)

        again, start_again = defined(text, said.columns)

    assert start_again == start
    assert_same_but_for_the_schema(again, first)
    assert shown(again, start_again) == text


@settings(deadline=None, max_examples=150)
@given(fields=st.lists(keys, min_size=1, max_size=4, unique_by=str.lower), data=st.data())
def test_a_star_is_shown_as_a_star(fields: list[str], data: st.DataObject) -> None:
    columns = tuple(Column(name=field, type=Primitive.STRING) for field in fields)
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [{field: data.draw(scalars) for field in fields}])
        source = listed({"uri": f"file://{name}/", "format": "json"})
        job = "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM FILES"
        first, start = defined(f"{job}({source})", columns)

        again, _ = defined(shown(first, start), columns)

    assert [target.path for target in first.targets] == [(field,) for field in fields]
    assert_same_but_for_the_schema(again, first)


@settings(deadline=None, max_examples=300)
@given(record=records_with(texts))
def test_fields_that_could_not_be_shown_are_refused_at_create(record: dict[str, Any]) -> None:
    columns = (Column(name="c", type=Primitive.STRING),)
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "a.json", [{"plain": 1, **record}])
        said = Said(
            record=record,
            fields=["plain"],
            head="CREATE JOB j ON STREAMING",
            tail="",
            columns_listed=False,
            options={},
        )
        try:
            first, start = defined(said.sql(Path(name)), columns)
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
def test_what_is_shown_after_progress_and_alter_defines_the_job_as_it_is_now(
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
            # An ALTER that changes nothing is refused, which leaves the job as it is.
            node.sql(f"ALTER JOB j PROPERTIES({listed(changed)})")
        before = node.job("j")

        text = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.sql(f"DROP JOB j; {text}")

        after = node.job("j")
        text_again = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
        node.catalog.close()
    assert text_again == text
    assert after.progress[0].floor == before.progress[0].floor
    assert_same_but_for_the_schema(after.definition, replace(before.definition, revision=1))


def with_properties(job: str, pairs: dict[str, str]) -> str:
    """Put properties into a CREATE JOB that has none."""
    clause = f"PROPERTIES({listed(pairs)}) " if pairs else ""
    return job.replace("ON STREAMING", f"{clause}ON STREAMING", 1)
