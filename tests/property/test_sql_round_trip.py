"""Formatted statements parse to the same statement."""

from dataclasses import replace
from unicodedata import category

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.job import LoadColumn, LoadProperties
from penstock.model.job_kinds import ROUTINE_LOAD
from penstock.model.schema import (
    Array,
    Column,
    DataType,
    Decimal,
    Map,
    Primitive,
    Struct,
    columns_sql,
    partition_column_error,
)
from penstock.model.text import quoted_name, quoted_text
from penstock.sql.formatter import format_interval, format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import (
    CreateFlow,
    CreateJob,
    CreateStreamingTable,
    CreateTable,
    Insert,
    RoutineBody,
    SelectItem,
    SourceCall,
    StreamColumn,
    StreamQueryText,
    StreamUse,
    Watermark,
)
from penstock.sql.types import DELAY_DAYS_MAX, parse_columns

TRICKY = "ab'\"`\\;-/*+#{}()=, \n\r\té😀\u2028\ufeff\u017f%_n0"
KEYWORDS = [
    "if",
    "table",
    "select",
    "from",
    "properties",
    "on",
    "not",
    "comment",
    "where",
    "as",
    "secret",
]

texts = st.text(st.sampled_from(TRICKY)) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)


def nameable(text: str) -> bool:
    """Return whether a text is valid as every kind of name."""
    plain = all(category(character) != "Cc" for character in text)
    return plain and bool(text.strip()) and not text.startswith("inner_") and len(text) <= 20


names = (
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
    | st.sampled_from(KEYWORDS)
    | texts.map(lambda text: "".join(one for one in text if category(one) != "Cc")[:20])
).filter(nameable)
table_names = names.map(str.lower)
references = st.builds(
    str.__add__, st.sampled_from(["secret:", "env:", "file:"]), texts | names
)
properties = st.lists(
    st.tuples(texts.filter(str.strip), texts | references),
    max_size=4,
    unique_by=lambda pair: pair[0].lower(),
).map(tuple)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(
        lambda scale: Decimal(precision=precision, scale=scale)
    )
)


def distinct(columns: list[Column]) -> tuple[Column, ...]:
    """Return the columns without duplicates; names are not case-sensitive."""
    return tuple({column.name.lower(): column for column in reversed(columns)}.values())


def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    """Return a strategy for types that contain other types."""
    fields = st.builds(Column, name=names, type=inner, nullable=st.booleans())
    return st.one_of(
        st.builds(Array, element=inner),
        st.builds(Map, key=inner, value=inner),
        st.lists(fields, min_size=1, max_size=3).map(
            lambda found: Struct(fields=distinct(found))
        ),
    )


types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(Primitive) | decimals, nested, max_leaves=5
)
columns = st.lists(
    st.builds(Column, name=names, type=types, nullable=st.booleans(), comment=texts),
    min_size=1,
    max_size=4,
).map(distinct)


UNITS_MS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
delays_ms = st.tuples(st.integers(0, DELAY_DAYS_MAX), st.sampled_from(UNITS_MS)).map(
    lambda drawn: drawn[0] * drawn[1]
) | st.integers(0, DELAY_DAYS_MAX * UNITS_MS[-1])


@st.composite
def tables(draw: st.DrawFn) -> CreateTable:
    """Draw a table with partition columns and a watermark, if its columns allow them."""
    chosen = draw(columns)
    allowed = [column.name for column in chosen if partition_column_error(column) is None]
    some = st.lists(st.sampled_from(allowed), unique=True) if allowed else st.just([])
    timed = [c.name for c in chosen if c.type in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)]
    watermarks = (
        st.builds(Watermark, column=st.sampled_from(timed), delay_ms=delays_ms)
        if timed
        else st.nothing()
    )
    return CreateTable(
        name=draw(table_names),
        columns=chosen,
        partition_by=tuple(draw(some)[: len(chosen) - 1]),
        location=draw(st.none() | texts.filter(str.strip)),
        comment=draw(texts),
        if_not_exists=draw(st.booleans()),
        watermark=draw(st.none() | watermarks),
    )


items = st.builds(
    SelectItem,
    path=st.lists(names, min_size=1, max_size=3).map(tuple),
    alias=st.none() | names,
)


# Before a column, these names could be a table alias, and only Spark can decide that.
QUALIFIERS = ("files", "s3", "another name")


@st.composite
def jobs(draw: st.DrawFn) -> CreateJob:
    """Draw a job with a typical SELECT."""
    unqualified = items.filter(lambda item: item.path[0].lower() not in QUALIFIERS)
    chosen = draw(st.none() | st.lists(unqualified, min_size=1, max_size=3).map(tuple))
    listed = "*" if chosen is None else ", ".join(map(item_sql, chosen))
    head = " ".join(["SELECT", listed, "\n FROM "])
    call = "FILES()"
    tail = draw(st.sampled_from(["", " /* the end */ AS `another name`"]))
    return CreateJob(
        name=draw(names),
        properties=draw(properties),
        comment=draw(texts),
        body=Insert(
            table=draw(table_names),
            columns=draw(
                st.none()
                | st.lists(names, min_size=1, max_size=3, unique_by=str.lower).map(tuple)
            ),
            select=head + call + tail,
            items=chosen,
            source=SourceCall(
                function=draw(st.sampled_from(["FILES", "S3"])),
                options=draw(properties),
                start=len(head),
                end=len(head + call),
            ),
        ),
    )


def item_sql(item: SelectItem) -> str:
    """Return the SQL of a SELECT column, with all names in backquotes."""
    path = ".".join(backquoted(name) for name in item.path)
    return path if item.alias is None else f"{path} AS {backquoted(item.alias)}"


def backquoted(name: str) -> str:
    """Return a name in backquotes, even if it needs none."""
    return "`" + name.replace("`", "``") + "`"


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for typical expressions that contain other expressions."""
    spaces = st.sampled_from([" ", "\n", " /* , FROM KINESIS( */ ", " -- PROPERTIES(\n"])
    operators = ["+", "<=>", "AND", "IS DISTINCT FROM", "||", "LIKE"]
    return st.one_of(
        st.tuples(inner, spaces, st.sampled_from(operators), spaces, inner).map("".join),
        st.lists(inner, max_size=3).map(lambda found: f"f({', '.join(found)})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]})[{two[1]}]"),
        st.tuples(inner, inner).map(lambda two: f"CASE WHEN {two[0]} THEN {two[1]} END"),
        inner.map(lambda one: f"extract(year FROM {one})"),
        inner.map(lambda one: f"any(x) FILTER (WHERE {one})"),
    )


expressions = st.recursive(
    names.map(backquoted)
    | texts.map(quoted_text)
    | st.sampled_from(["1", "x.from", "x.where", "comment", "properties", "kinesis", "a.b.c"]),
    composed,
    max_leaves=6,
)


@st.composite
def load_columns(draw: st.DrawFn) -> tuple[LoadColumn, ...]:
    """Draw plain and computed columns in any order; names can be in both groups."""
    some = st.lists(names, max_size=3, unique_by=str.lower)
    plain = [LoadColumn(name=name) for name in draw(some)]
    computed = [LoadColumn(name=name, expression=draw(expressions)) for name in draw(some)]
    return tuple(draw(st.permutations(plain + computed)))


routine_loads = st.builds(
    CreateJob,
    kind=st.just(ROUTINE_LOAD),
    name=names,
    body=st.builds(
        RoutineBody,
        table=table_names,
        load=st.builds(
            LoadProperties,
            separator=st.none() | texts.filter(bool),
            columns=st.none() | load_columns().filter(bool),
            preceding_filter=st.none() | expressions,
            where=st.none() | expressions,
        ),
        source=st.builds(
            SourceCall,
            function=st.from_regex("[A-Z_][A-Z0-9_]*", fullmatch=True),
            options=properties,
            start=st.just(0),
            end=st.just(0),
        ),
    ),
    properties=properties,
    comment=texts,
)


STREAM_WORDS = ["by", "delay", "identifier", "insert", "into", "once", "stream", "watermark"]
# Parts of a query before and after a stream.
AROUND_STREAM = (
    ("SELECT * FROM ", ""),
    ("(SELECT a, /* , STREAM */ 'it''s' FROM b c,\n  ", "\n) -- the end\n LIMIT 1"),
    ("WITH q AS (SELECT 1)\nFROM q JOIN ", " USING (a)\nSELECT *"),
)
stream_names = names | st.sampled_from(STREAM_WORDS)


@st.composite
def stream_queries(draw: st.DrawFn) -> StreamQueryText:
    """Draw a query with one stream."""
    head, tail = draw(st.sampled_from(AROUND_STREAM))
    table = draw(stream_names.map(str.lower))
    watermark = draw(st.none() | st.builds(Watermark, column=stream_names, delay_ms=delays_ms))
    alias = draw(st.none() | stream_names)
    stream = f"STREAM {backquoted(table)}"
    if watermark is not None:
        delay = format_interval(watermark.delay_ms)
        stream += f" WATERMARK {backquoted(watermark.column)} DELAY OF INTERVAL {delay}"
    named = "" if alias is None else f" AS {backquoted(alias)}"
    use = StreamUse(
        table=table,
        start=len(head),
        end=len(head + stream),
        watermark=watermark,
        alias=alias,
    )
    return StreamQueryText(text=head + stream + named + tail, streams=(use,))


stream_columns = st.lists(
    st.builds(
        StreamColumn,
        name=stream_names,
        type=st.none() | types,
        comment=texts,
        nullable=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda column: column.name.lower(),
).map(tuple)


@st.composite
def streaming_tables(draw: st.DrawFn) -> CreateStreamingTable:
    """Draw a streaming table; the query determines columns that are not listed."""
    chosen = draw(stream_columns)
    allowed = st.sampled_from([column.name for column in chosen]) if chosen else stream_names
    return CreateStreamingTable(
        name=draw(stream_names.map(str.lower)),
        query=draw(stream_queries()),
        columns=chosen,
        partition_by=tuple(draw(st.lists(allowed, max_size=3, unique_by=str.lower))),
        comment=draw(texts),
        location=draw(st.none() | texts.filter(str.strip)),
        options=draw(properties),
        if_not_exists=draw(st.booleans()),
        or_refresh=draw(st.booleans()),
    )


flows = st.builds(
    CreateFlow,
    name=stream_names.map(str.lower).filter(nameable),
    table=stream_names.map(str.lower),
    query=stream_queries(),
    comment=texts,
    options=properties,
)


@settings(deadline=None, max_examples=300)
@given(table=streaming_tables())
def test_a_formatted_streaming_table_parses_to_the_same_statement(
    table: CreateStreamingTable,
) -> None:
    (parsed,) = parse_script(f"-- first\n{format_statement(table)};")

    assert parsed.statement == table


@settings(deadline=None, max_examples=300)
@given(flow=flows)
def test_a_formatted_flow_parses_to_the_same_statement(flow: CreateFlow) -> None:
    (parsed,) = parse_script(f"-- first\n{format_statement(flow)};")

    assert parsed.statement == flow


@settings(deadline=None, max_examples=300)
@given(job=routine_loads)
def test_a_formatted_routine_load_parses_to_the_same_statement(job: CreateJob) -> None:
    (parsed,) = parse_script(f"-- first\n{format_statement(job)};")

    assert parsed.statement == job


@settings(deadline=None, max_examples=300)
@given(table=tables())
def test_a_formatted_table_parses_to_the_same_statement(table: CreateTable) -> None:
    (parsed,) = parse_script(format_statement(table))

    assert parsed.statement == table


@settings(deadline=None, max_examples=300)
@given(job=jobs())
def test_a_formatted_job_parses_to_the_same_statement(job: CreateJob) -> None:
    (parsed,) = parse_script(f"-- first\n{format_statement(job)};")

    found = parsed.statement
    assert isinstance(found, CreateJob)
    insert, written = found.body, job.body
    assert isinstance(insert, Insert)
    assert isinstance(written, Insert)
    assert insert.select[insert.source.end :] == written.select[written.source.end :]
    assert replace(found, body=written) == job
    assert insert.source.options == written.source.options
    assert (insert.source.function, insert.source.start) == (
        written.source.function,
        written.source.start,
    )
    assert (insert.table, insert.columns, insert.items) == (
        written.table,
        written.columns,
        written.items,
    )


@settings(deadline=None, max_examples=300)
@given(written=columns)
def test_a_formatted_column_list_parses_to_the_same_columns(
    written: tuple[Column, ...],
) -> None:
    assert parse_columns(columns_sql(written)) == written


@settings(deadline=None, max_examples=300)
@given(name=names)
def test_a_quoted_name_is_one_name(name: str) -> None:
    (parsed,) = parse_script(f"SHOW EVENTS FOR {quoted_name(name)}")

    assert getattr(parsed.statement, "name", None) == name
