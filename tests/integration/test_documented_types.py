"""Every type in docs/reference/types.md can be created, loaded and read by other readers."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from penstock.arrow.types import AnyArray, arrow_type
from penstock.errors import Code, UserError
from penstock.model.job import TargetColumn
from penstock.model.schema import Array, Column, DataType, Map, Primitive, Struct
from penstock.sql.types import parse_columns
from penstock.tables.fitting import fit
from penstock.tables.schema import schema_text
from tests.error_values import raises
from tests.integration.table_readers import READERS, Reader, Row, in_order, written

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs/reference/types.md"
QUOTED = re.compile("`([^`]+)`")


class Documented(NamedTuple):
    """A line of the table of types."""

    sql: str
    synonyms: str
    delta: str
    arrow: str
    texts: list[str]

    @property
    def kind(self) -> DataType:
        return kind_of(self.sql)


def kind_of(sql: str) -> DataType:
    return parse_columns(f"c {sql}")[0].type


def documented() -> list[Documented]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        Documented(sql.strip("`"), also, delta, arrow, QUOTED.findall(texts))
        for sql, also, delta, arrow, texts in cells
    ]


TYPES = documented()
SYNONYMS = [(name, line) for line in TYPES for name in line.synonyms.split(", ") if name]


@pytest.mark.parametrize("line", TYPES, ids=lambda line: line.sql)
def test_a_documented_type_has_the_delta_and_arrow_type_beside_it(line: Documented) -> None:
    (field,) = json.loads(schema_text((Column(name="c", type=line.kind),)))["fields"]

    delta = field["type"] if isinstance(field["type"], str) else field["type"]["type"]

    assert line.kind.sql == line.sql
    assert delta == line.delta
    assert str(arrow_type(line.kind)).partition("<")[0] == line.arrow


@pytest.mark.parametrize(("name", "line"), SYNONYMS)
def test_a_documented_synonym_means_the_type(name: str, line: Documented) -> None:
    digits = "(9, 2)" if line.sql.startswith("DECIMAL") else ""

    assert kind_of(name + digits) == line.kind


def test_no_type_is_undocumented() -> None:
    kinds = [line.kind for line in TYPES]

    assert {kind for kind in kinds if isinstance(kind, Primitive)} == set(Primitive)
    assert {type(kind) for kind in kinds} >= {Array, Map, Struct}


@pytest.mark.parametrize("reader", READERS)
def test_every_documented_type_is_loaded_and_read_back(reader: Reader, tmp_path: Path) -> None:
    columns = tuple(Column(name=f"c{at}", type=line.kind) for at, line in enumerate(TYPES))
    rows = fitted(columns)

    location = written(tmp_path, columns, rows)

    assert in_order(reader(location, "true")) == in_order(rows)


def fitted(columns: tuple[Column, ...]) -> list[Row]:
    """Convert the documented texts, and a row of NULLs, to the columns as a task does."""
    height = max(len(line.texts) for line in TYPES) + 1
    arrays = [padded(source_values(line), height) for line in TYPES]
    names = [column.name for column in columns]
    targets = tuple(TargetColumn(name=name, path=(name,)) for name in names)
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    rows: list[Row] = fit(batch, targets=targets, columns=columns).to_pylist()
    return rows


def source_values(line: Documented) -> AnyArray:
    if not isinstance(line.kind, Array | Map | Struct):
        return pa.array(line.texts, pa.string())
    values = [entries(json.loads(text), line.kind) for text in line.texts]
    return pa.array(values, arrow_type(line.kind))


def entries(value: Any, kind: DataType) -> Any:
    """Convert objects that represent maps to lists of entries."""
    match kind:
        case Map() if value is not None:
            return [(key, entries(item, kind.value)) for key, item in value.items()]
        case Array() if value is not None:
            return [entries(item, kind.element) for item in value]
        case Struct() if value is not None:
            return {field.name: entries(value[field.name], field.type) for field in kind.fields}
        case _:
            return value


def padded(values: AnyArray, height: int) -> AnyArray:
    return pa.concat_arrays([values, pa.nulls(height - len(values), values.type)])


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("TIME", "Use STRING"),
        ("INTERVAL", "Use BIGINT"),
        ("VARIANT", "Use STRING"),
        ("JSON", "Use STRING"),
        ("GEOMETRY", "Use BINARY"),
        ("GEOGRAPHY", "Use BINARY"),
        ("UUID", "Use STRING"),
        ("LARGEINT", "Use DECIMAL(38, 0)"),
        ("HLL", "The types are BOOLEAN"),
    ],
)
def test_a_type_that_delta_lacks_is_refused_with_an_alternative(sql: str, advice: str) -> None:
    with raises(UserError, Code.NOT_SUPPORTED_ERR, sql) as caught:
        kind_of(sql)

    assert caught.value.hint.startswith(advice)


def test_a_negative_scale_is_refused() -> None:
    with raises(UserError, Code.SYNTAX_ERR, "scale"):
        kind_of("DECIMAL(10, -2)")
