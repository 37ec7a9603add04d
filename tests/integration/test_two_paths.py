"""A plain column list and the same list through Spark load the same rows and rejects."""

import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.arrow.casts import can_cast
from penstock.arrow.types import arrow_schema, arrow_type
from penstock.model.epoch import Statistics
from penstock.model.schema import (
    Array,
    Column,
    DataType,
    Decimal,
    Map,
    Primitive,
    Struct,
    columns_sql,
)
from penstock.sources.formats.blocks import Wanted
from penstock.sources.formats.json_reader import json_reading, read_json
from penstock.spark.executor import SparkExecutor
from tests.error_values import assert_names
from tests.node import Node, read_table

pytestmark = pytest.mark.integration

# Examples are not minimised, because every example takes a second of Spark.
FEW = settings(deadline=None, max_examples=7, phases=[Phase.explicit, Phase.generate])
P = Primitive
SCALARS: list[DataType] = [
    *Primitive,
    Decimal(precision=5, scale=2),
    Decimal(precision=38, scale=10),
]
NESTED: list[DataType] = [
    Array(element=P.INT),
    Array(element=Array(element=P.STRING)),
    Map(key=P.STRING, value=P.DOUBLE),
    Map(key=P.INT, value=Array(element=P.DATE)),
    Struct(fields=(Column(name="a", type=P.BIGINT), Column(name="B", type=P.TIMESTAMP))),
    Struct(fields=(Column(name="x", type=Array(element=Decimal(precision=5, scale=2))),)),
]
# Every row passes these WHEREs, but Spark must evaluate them.
WHERES = ["WHERE true", "WHERE coalesce(key, 0) IS NOT NULL", "WHERE key IS NULL OR key < 1e30"]

texts = st.text(max_size=4)
integers = st.sampled_from(
    [0, 1, -1, 127, 128, -(2**15), 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
)
odd: st.SearchStrategy[Any] = st.sampled_from(
    [
        "\ud800",
        *(True, 2**63, 1.5, -0.0, 1e300, 1e39, "", " 7 ", "x", "NaN", "2026-11-15", "24:00"),
        *("1.005", "99999", "\0", -(2**63), -(2**63) - 1),
        *([], {}, [None], ["x"], {"a": 1}, {"a": "1", "c": 2}),
    ]
)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    P.BOOLEAN: st.booleans(),
    P.TINYINT: st.integers(-128, 127),
    P.SMALLINT: st.integers(-(2**15), 2**15 - 1),
    P.INT: st.integers(-(2**31), 2**31 - 1),
    P.BIGINT: integers,
    P.FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False),
    P.DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    P.STRING: texts | integers.map(str) | st.sampled_from(["true", "1.5", "2026-11-15"]),
    P.BINARY: texts,
    P.DATE: st.dates().map(str),
    P.TIMESTAMP: st.datetimes().map(str) | st.just("2026-11-15T10:00:00+02:00"),
    P.TIMESTAMP_NTZ: st.datetimes().map(str),
}


def values(kind: DataType) -> st.SearchStrategy[Any]:
    """Generate JSON values, most of which fit a type."""
    match kind:
        case Decimal():
            return st.integers(-(10**6), 10**6).map(lambda number: number / 1000)
        case Array():
            return st.lists(st.none() | values(kind.element), max_size=3)
        case Map():
            keys = texts if kind.key is P.STRING else st.integers(0, 9).map(str)
            return st.dictionaries(keys, st.none() | values(kind.value), max_size=3)
        case Struct():
            optional = {field.name: st.none() | values(field.type) for field in kind.fields}
            return st.fixed_dictionaries({}, optional=optional)
        case _:
            return VALUES[kind]


@st.composite
def columns_of(
    draw: st.DrawFn, kinds: list[DataType]
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Generate columns of the files, and the table columns that receive their values."""
    drawn = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=6))
    source = [Column(name="key", type=P.BIGINT)]
    target = [Column(name="Key", type=draw(st.sampled_from([P.BIGINT, P.STRING, P.SMALLINT])))]
    for number, kind in enumerate(drawn):
        fitting = [to for to in SCALARS if can_cast(arrow_type(kind), arrow_type(to))]
        to = draw(st.sampled_from([kind, *fitting]))
        nullable = draw(st.sampled_from([True, True, False]))
        source.append(Column(name=f"c{number}", type=kind))
        target.append(Column(name=f"C{number}", type=to, nullable=nullable))
    return tuple(source), tuple(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files, and the columns of the files and of the table."""

    source: tuple[Column, ...]
    target: tuple[Column, ...]
    files: tuple[bytes, ...]
    where: str
    time_zone: str


@st.composite
def cases(
    draw: st.DrawFn,
    kinds: list[DataType],
    contents: Callable[[tuple[Column, ...]], st.SearchStrategy[bytes]],
) -> Case:
    source, target = draw(columns_of(kinds))
    return Case(
        source=source,
        target=target,
        files=tuple(draw(contents(source)) for _ in range(draw(st.integers(1, 3)))),
        where=draw(st.sampled_from(WHERES)),
        time_zone=draw(st.sampled_from(["UTC", "America/St_Johns"])),
    )


def json_contents(source: tuple[Column, ...]) -> st.SearchStrategy[bytes]:
    fields = {column.name: mostly(values(column.type)) for column in source}
    records = st.fixed_dictionaries(fields, optional={"unknown": odd}).map(json.dumps)
    broken = st.sampled_from(["", "  ", "null", '{"key": 1', "{}", '{"key":1,"key":2}', "{}{}"])
    lines = st.one_of(records, records, records, records, broken)
    return st.lists(lines, min_size=20, max_size=40).map(lambda all_: "\n".join(all_).encode())


def mostly(fitting: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[fitting] * 12, st.none(), odd)


def csv_contents(source: tuple[Column, ...]) -> st.SearchStrategy[bytes]:
    fields = [mostly(values(column.type)).map(csv_text) for column in source]
    records = st.tuples(*fields).map(",".join)
    broken = st.sampled_from(["", "1", "1,2,3,4,5,6,7,8,9", ",,,", '"a', 'x"y,z', '"a"b'])
    lines = st.one_of(records, records, records, records, broken)
    return st.lists(lines, min_size=20, max_size=40).map(
        lambda all_: "\n".join(all_).encode("utf-8", "surrogatepass")
    )


def csv_text(value: object) -> str:
    if value is None:
        return "\\N"
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


def parquet_contents(source: tuple[Column, ...]) -> st.SearchStrategy[bytes]:
    """Generate rows of the declared types; some columns are texts, which do not always fit."""
    scalars = [c.name for c in source if isinstance(c.type, Primitive | Decimal)]
    as_text = st.frozensets(st.sampled_from(scalars), max_size=2)
    return st.builds(partial(parquet, source), json_contents(source), as_text)


def parquet(source: tuple[Column, ...], lines: bytes, as_text: frozenset[str]) -> bytes:
    """Write the rows of some JSON lines; convert the values of some columns to text."""
    schema = arrow_schema(source)
    reading = json_reading(Wanted(columns=schema, names=tuple(schema.names)))
    blocks = read_json(io.BytesIO(lines), reading=reading, start=0, end=None)
    table = pa.Table.from_batches([block.batch for block in blocks], schema=schema)
    for name in as_text:
        printed = [None if v is None else str(v) for v in table.column(name).to_pylist()]
        printed[::7] = ["99999"] * len(printed[::7])
        column = pa.chunked_array([printed], pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=16)
    return stream.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Rows and rejects of a job as sorted texts, and its statistics."""

    rows: list[str]
    rejects: list[tuple[str, str]]
    reader_rejects: list[tuple[str, int, str, bytes]]
    statistics: Statistics


def load_both(spark: SparkExecutor, case: Case, *, options: str, starred: bool) -> list[Loaded]:
    """Load a case on the fused path and on the SQL path, into two tables."""
    selected = "*" if starred else ", ".join(column.name for column in case.source)
    columns = tuple(reversed(case.target)) if starred else case.target
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder) / "home", spark=spark)
        for number, content in enumerate(case.files):
            (Path(folder) / f"{number}.in").write_bytes(content)
        for path, where in (("fused", ""), ("query", case.where)):
            source = f"'uri' = 'file://{folder}/*.in', 'schema' = '{columns_sql(case.source)}'"
            node.sql(
                f"CREATE TABLE {path} ({columns_sql(columns)}); "  # noqa: S608 - Our own SQL.
                f"CREATE JOB {path} PROPERTIES("
                "'session.enable_insert_strict' = 'false', "
                f"'session.time_zone' = '{case.time_zone}') ON STREAMING DO INSERT INTO {path} "
                f"SELECT {selected} FROM FILES({source}, {options}) {where}"
            )
        assert node.job("fused").definition.query is None
        assert node.job("query").definition.query is not None
        node.run()
        loaded = [loaded_by(node, path) for path in ("fused", "query")]
        node.catalog.close()
    return loaded


def loaded_by(node: Node, name: str) -> Loaded:
    assert node.tables is not None
    state = node.job(name)
    assert not node.show(name)["reason"]
    location = Path(node.tables.rejects_location(state.id))
    rejects = read_table(str(location)) if location.exists() else []
    by_reader = [row for row in rejects if row["stage"] == "reader"]
    return Loaded(
        rows=sorted(str(row) for row in node.rows(name)),
        rejects=sorted((row["stage"], row["error"]) for row in rejects),
        reader_rejects=sorted(
            (Path(row["file"]).name, row["line"], row["error"], row["raw"]) for row in by_reader
        ),
        # Sizes on disk depend on how rows were divided into batches.
        statistics=replace(state.cumulative, bytes_written=0),
    )


@pytest.mark.parametrize("where", ["", "WHERE true"])
def test_a_misfit_is_rejected_with_the_column_names_of_the_select(
    spark_node: Node, folder: Path, where: str
) -> None:
    (folder / "a.json").write_text('{"id": 300, "note": "x"}\n')
    spark_node.sql(
        "CREATE TABLE t (a TINYINT, b STRING); "  # noqa: S608 - Our own SQL.
        "CREATE JOB j PROPERTIES('session.enable_insert_strict' = 'false') ON STREAMING DO "
        f"INSERT INTO t SELECT id, note FROM FILES('uri' = 'file://{folder}/*.json', "
        f"'format' = 'json') {where}"
    )

    spark_node.run()

    assert spark_node.tables is not None
    (reject,) = read_table(spark_node.tables.rejects_location(spark_node.job("j").id))
    assert_names(reject["error"], '"a"', "TINYINT", "300")
    assert json.loads(reject["raw"]) == {"id": 300, "note": "x"}


def expect_same(fused: Loaded, query: Loaded) -> None:
    assert query.rows == fused.rows
    assert query.rejects == fused.rejects
    assert query.reader_rejects == fused.reader_rejects
    assert query.statistics == fused.statistics
    assert fused.statistics.rows_read
    assert fused.statistics.rows_unselected == 0


@FEW
@given(case=cases(SCALARS + NESTED, json_contents), starred=st.booleans())
def test_json_loads_the_same_rows_with_and_without_spark(
    *, spark: SparkExecutor, case: Case, starred: bool
) -> None:
    fused, query = load_both(spark, case, options="'format' = 'json'", starred=starred)

    expect_same(fused, query)


@FEW
@given(case=cases(SCALARS, csv_contents), starred=st.booleans())
def test_csv_loads_the_same_rows_with_and_without_spark(
    *, spark: SparkExecutor, case: Case, starred: bool
) -> None:
    options = "'format' = 'csv', 'column_separator' = ',', 'enclose' = '\"'"

    fused, query = load_both(spark, case, options=options, starred=starred)

    expect_same(fused, query)


@FEW
@given(case=cases(SCALARS + NESTED, parquet_contents), starred=st.booleans())
def test_parquet_loads_the_same_rows_with_and_without_spark(
    *, spark: SparkExecutor, case: Case, starred: bool
) -> None:
    fused, query = load_both(spark, case, options="'format' = 'parquet'", starred=starred)

    expect_same(fused, query)
