"""Broken, truncated or mislabelled files: the file is named, and no row is lost.

Every case has a good file before and after the bad file. An unreadable file pauses the job in
every mode. A bad row pauses the job only in strict mode.
"""

import gzip
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Code, UserError
from tests.error_values import assert_reason
from tests.integration.driving import Failing, MovedClock, attempts
from tests.mirrored_node import OpenNode
from tests.node import Node

ON_BUCKETS_TOO = True

TABLE = "CREATE TABLE t (id BIGINT NOT NULL, note STRING)"
SCHEMA = "id BIGINT, note STRING"
CSV = "'column_separator' = ',', 'enclose' = '\"', 'format' = "
BOM = b"\xef\xbb\xbf"


def json_lines(*numbers: int) -> bytes:
    return b"".join(b'{"id": %d, "note": "row %d"}\n' % (n, n) for n in numbers)


def csv_lines(*numbers: int) -> bytes:
    return b"".join(b"%d,row %d\n" % (number, number) for number in numbers)


def named_lines(*numbers: int) -> bytes:
    return b"id,note\n" + csv_lines(*numbers)


def parquet(*numbers: int) -> bytes:
    rows = [{"id": number, "note": f"row {number}"} for number in numbers]
    stream = io.BytesIO()
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "note": pa.string()}
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(kinds)), stream)
    return stream.getvalue()


def json_array(*numbers: int) -> bytes:
    return json.dumps([{"id": n, "note": f"row {n}"} for n in numbers]).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A format: suffix of its files, options of the job, and a function to write a file."""

    suffix: str
    options: str
    write: Callable[..., bytes]


JSON = Kind(suffix="json", options="'format' = 'json'", write=json_lines)
GZ = Kind(
    suffix="json.gz",
    options="'format' = 'json'",
    write=lambda *numbers: gzip.compress(json_lines(*numbers)),
)
ARRAY = Kind(
    suffix="json", options="'format' = 'json', 'strip_outer_array' = 'true'", write=json_array
)
PLAIN_CSV = Kind(suffix="csv", options=f"{CSV}'csv'", write=csv_lines)
NAMED_CSV = Kind(suffix="csv", options=f"{CSV}'csv_with_names'", write=named_lines)
PARQUET = Kind(suffix="parquet", options="'format' = 'parquet'", write=parquet)
KINDS = [JSON, GZ, ARRAY, PLAIN_CSV, NAMED_CSV, PARQUET]


def damaged(content: bytes, at: int) -> bytes:
    """Invert the bits of some bytes."""
    return (
        content[:at] + bytes(255 - octet for octet in content[at : at + 8]) + content[at + 8 :]
    )


WHOLE = gzip.compress(json_lines(*range(100, 5000)))
ROWS = parquet(*range(100, 5000))

# The kind, the content of the bad file, and the message after the file's name.
UNREADABLE: dict[str, tuple[Kind, bytes, str]] = {
    "truncated gzip": (GZ, WHOLE[: len(WHOLE) // 2], "the gzip stream ends too early"),
    "gzip without its end": (GZ, WHOLE[:-4], "the gzip stream ends too early"),
    "damaged gzip": (GZ, damaged(WHOLE, len(WHOLE) // 2), "the gzip stream is broken"),
    "gzip with a wrong checksum": (
        GZ,
        damaged(WHOLE, len(WHOLE) - 8),
        "the gzip stream is broken",
    ),
    "text called .gz": (GZ, json_lines(2), "the gzip stream is broken, at byte 0"),
    "text called .parquet": (PARQUET, json_lines(2), "a Parquet file must start with b'PAR1'"),
    "empty Parquet": (PARQUET, b"", "a Parquet file must start with b'PAR1', found b''"),
    "truncated Parquet": (
        PARQUET,
        ROWS[: len(ROWS) // 2],
        "a Parquet file must end with b'PAR1'",
    ),
    "Parquet that is all magic": (PARQUET, b"PAR1PAR1", "the footer of the Parquet file"),
    "wrong length of a footer": (
        PARQUET,
        ROWS[:-8] + b"\xff\xff\xff\x7fPAR1",
        "the footer of the Parquet file is broken",
    ),
    "damaged footer": (PARQUET, damaged(ROWS, len(ROWS) - 60), "Parquet file"),
    "damaged pages": (PARQUET, damaged(ROWS, 40), "Parquet file is broken"),
    "array without an end": (ARRAY, json_array(2, 3)[:-1], "is not closed"),
    "truncated array": (ARRAY, json_array(2, 3)[:-20], "is not closed"),
    "header that is not UTF-8": (NAMED_CSV, b"id,n\xffte\n2,x\n", "a name is not UTF-8"),
    "header with a name twice": (NAMED_CSV, b"id,note,id\n2,x,3\n", 'have the same name, "id"'),
    "header with an unclosed quote": (NAMED_CSV, b'"id,note\n2,x\n', "the header on line 1"),
}

# The kind, the content, the place of the first bad row, and the good rows that can be loaded.
BAD_ROWS: dict[str, tuple[Kind, bytes, str, list[int]]] = {
    "unclosed quotes": (PLAIN_CSV, b'2,a\n3,"b\n4,c\n', "line 2: ", [2]),
    "more columns": (
        PLAIN_CSV,
        b"2,a\n3,b,c\n",
        "line 2: a row must have at most 2 fields, found 3",
        [2],
    ),
    "a column too many": (
        NAMED_CSV,
        b"id,note\n2,a\n3,b,c\n",
        "line 3: a row must have at most 2",
        [2],
    ),
    "100,000 columns": (PLAIN_CSV, b"2,a\n" + b"x," * 99_999 + b"x\n3,b\n", "line 2: ", [2, 3]),
    "mixed encodings": (PLAIN_CSV, b"2,a\n3,\xe9\n4,\xc3\xa9\n", "line 2: ", [2, 4]),
    "mixed encodings in JSON": (
        JSON,
        b'{"id": 2}\n{"id": 3, "note": "\xe9"}\n',
        "line 2: byte 20 of the line is not UTF-8",
        [2],
    ),
    "half a surrogate pair": (
        JSON,
        b'{"id": 2}\n{"id": "\\ud800"}\n',
        'line 2: column "id": expected BIGINT, found "\\ud800"',
        [2],
    ),
    "UTF-16": (JSON, json_lines(2).decode().encode("utf-16"), "line 1: byte 1 of the line", []),
    "an array among lines": (JSON, b'[{"id": 2}]\n{"id": 3}\n', "line 1: a record must", [3]),
    "no id": (NAMED_CSV, b"note\nx\n", 'line 2: column "id": expected BIGINT, found NULL', []),
}

# Unusual content that must load: the kind, the content, and the ids in it.
HARMLESS: dict[str, tuple[Kind, bytes, list[int]]] = {
    "byte order mark in JSON": (JSON, BOM + json_lines(2, 3), [2, 3]),
    "byte order mark in CSV": (PLAIN_CSV, BOM + csv_lines(2, 3), [2, 3]),
    "byte order mark before a header": (NAMED_CSV, BOM + named_lines(2, 3), [2, 3]),
    "byte order mark before an array": (ARRAY, BOM + json_array(2, 3), [2, 3]),
    "CRLF in JSON": (JSON, json_lines(2, 3).replace(b"\n", b"\r\n"), [2, 3]),
    "CRLF in CSV": (PLAIN_CSV, csv_lines(2, 3).replace(b"\n", b"\r\n"), [2, 3]),
    "CRLF after a header": (NAMED_CSV, named_lines(2, 3).replace(b"\n", b"\r\n"), [2, 3]),
    "no end of the last line": (JSON, json_lines(2, 3)[:-1], [2, 3]),
    "header only": (NAMED_CSV, b"id,note\n", []),
    "header without an end": (NAMED_CSV, b"id,note", []),
    "names in another order": (NAMED_CSV, b"note,ID\nrow 2,2\nrow 3,3\n", [2, 3]),
    "100,000 unused columns": (
        NAMED_CSV,
        b",".join(b"n%d" % n for n in range(99_998))
        + b",id,note\n"
        + b"x," * 99_998
        + b"2,row 2\n",
        [2],
    ),
    "empty JSON": (JSON, b"", []),
    "empty gzip": (GZ, gzip.compress(b""), []),
    "gzip of no byte": (GZ, b"", []),
    "empty CSV": (PLAIN_CSV, b"", []),
    "empty CSV with names": (NAMED_CSV, b"", []),
    "empty array": (ARRAY, b"[]", []),
    "empty file for an array": (ARRAY, b"", []),
    "Parquet without rows": (PARQUET, parquet(), []),
    "gzip of two members": (
        GZ,
        gzip.compress(json_lines(2)) + gzip.compress(json_lines(3)),
        [2, 3],
    ),
}


def create(folder: Path, kind: Kind, *, strict: bool, files: int = 256, more: str = "") -> str:
    return (
        f"{TABLE}; CREATE JOB j PROPERTIES("  # noqa: S608 - Our own SQL.
        f"'session.enable_insert_strict' = '{strict}', "
        f"'s3.max_batch_files' = '{files}') ON STREAMING DO INSERT INTO t "
        f"SELECT id, note FROM FILES('uri' = 'file://{folder}/*.{kind.suffix}', "
        f"'schema' = '{SCHEMA}', {kind.options}{more})"
    )


def put(folder: Path, kind: Kind, name: str, content: bytes) -> Path:
    path = folder / f"{name}.{kind.suffix}"
    path.write_bytes(content)
    return path


def place_between(folder: Path, kind: Kind, bad: bytes) -> Path:
    """Write a good file, the bad file and another good file; return the bad path."""
    put(folder, kind, "a", kind.write(1))
    put(folder, kind, "c", kind.write(9))
    return put(folder, kind, "b", bad)


def ids(node: Node) -> list[int]:
    return sorted(row["id"] for row in node.rows("t"))


def rejected(node: Node) -> list[dict[str, Any]]:
    assert node.tables is not None
    location = node.tables.rejects_location(node.job("j").id)
    return node.read(location) if node.exists(location) else []


def cases(rows: Mapping[str, tuple[Any, ...]], *, columns: int) -> list[Any]:
    """Return some columns of the cases. On buckets, an empty object would not be a file."""
    no_object = pytest.mark.of_local_files("an empty object is not a file")
    return [
        pytest.param(*row[:columns], id=name, marks=[] if row[1] else [no_object])
        for name, row in rows.items()
    ]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("kind", "content", "message"), cases(UNREADABLE, columns=3))
def test_an_unreadable_file_is_reported_and_loads_after_it_was_fixed(
    node: Node, folder: Path, *, kind: Kind, content: bytes, message: str, strict: bool
) -> None:
    bad = place_between(folder, kind, content)
    node.sql(create(folder, kind, strict=strict))

    node.run()

    assert node.show("j")["state"] == "PAUSED"
    reason = str(node.show("j")["reason"])
    assert reason.startswith(f'FILE_ERR: file "{bad}": ')
    assert message in reason
    assert attempts(node) == [(1, 1, "FAILED")]
    assert ids(node) == []
    assert rejected(node) == []
    bad.write_bytes(kind.write(5, 6))
    node.sql("RESUME JOB j")
    node.run()
    assert ids(node) == [1, 5, 6, 9]
    assert node.show("j")["files_loaded"] == 3
    assert node.show("j")["reason"] == ""


@pytest.mark.of_local_files("which files come first is tested in both places elsewhere")
@pytest.mark.parametrize(("kind", "content", "message"), cases(UNREADABLE, columns=3))
def test_files_after_an_unreadable_file_load_once_it_is_deleted(
    node: Node, folder: Path, kind: Kind, content: bytes, message: str
) -> None:
    bad = place_between(folder, kind, content)
    node.sql(create(folder, kind, strict=False, files=1))

    node.run()

    assert ids(node) == [1]
    assert message in str(node.show("j")["reason"])
    assert node.show("j")["position"] == str(folder / f"a.{kind.suffix}")
    bad.unlink()
    node.sql("RESUME JOB j")
    node.run()
    assert ids(node) == [1, 9]
    assert node.show("j")["files_loaded"] == 2


@pytest.mark.parametrize(
    ("kind", "content", "message"), [row[:3] for row in BAD_ROWS.values()], ids=BAD_ROWS
)
def test_a_bad_row_stops_a_strict_job_with_its_file_and_line(
    node: Node, folder: Path, kind: Kind, content: bytes, message: str
) -> None:
    bad = place_between(folder, kind, content)
    node.sql(create(folder, kind, strict=True))

    node.run()

    reason = str(node.show("j")["reason"])
    assert reason.startswith(f'TOO_MANY_FAILURE_ROWS_ERR: file "{bad}", {message}')
    assert len(reason) < 1000
    assert ids(node) == []
    assert attempts(node) == [(1, 1, "FAILED")]
    bad.write_bytes(kind.write(5, 6))
    node.sql("RESUME JOB j")
    node.run()
    assert ids(node) == [1, 5, 6, 9]


@pytest.mark.parametrize(
    ("kind", "content", "message", "good"), BAD_ROWS.values(), ids=BAD_ROWS
)
def test_a_lenient_job_stores_a_bad_row_as_a_reject_and_loads_the_others(
    node: Node, folder: Path, *, kind: Kind, content: bytes, message: str, good: list[int]
) -> None:
    bad = place_between(folder, kind, content)
    node.sql(create(folder, kind, strict=False))

    node.run()

    rejects = rejected(node)
    assert ids(node) == [1, *good, 9]
    assert {row["file"] for row in rejects} == {node.name_of(bad)}
    first = min(rejects, key=lambda row: row["line"])
    assert f"line {first['line']}: {first['error']}".startswith(message)
    assert node.job("j").cumulative.rows_rejected == len(rejects)


@pytest.mark.parametrize(("kind", "content", "found"), cases(HARMLESS, columns=3))
def test_an_unusual_but_valid_file_loads(
    node: Node, folder: Path, kind: Kind, content: bytes, found: list[int]
) -> None:
    place_between(folder, kind, content)
    # Strict, because a lenient job would store a bad row as a reject and continue.
    node.sql(create(folder, kind, strict=True))

    node.run()

    assert ids(node) == [1, *found, 9]
    assert {row["note"] for row in node.rows("t")} == {f"row {n}" for n in [1, *found, 9]}
    assert node.show("j")["files_loaded"] == 3
    assert rejected(node) == []


def test_missing_columns_are_null_or_an_error_depending_on_the_option(
    node: Node, folder: Path
) -> None:
    bad = place_between(folder, PLAIN_CSV, b"2\n")
    node.sql(create(folder, PLAIN_CSV, strict=True, more=", 'missing_columns' = 'fail'"))
    node.run()
    named = (f'"{bad}"', "line 1", "2", "found 1")
    assert_reason(node.show("j")["reason"], Code.TOO_MANY_FAILURE_ROWS_ERR, *named)
    assert node.rows("t") == []

    node.sql("DROP JOB j; DROP TABLE t; " + create(folder, PLAIN_CSV, strict=True))
    node.run()

    assert {(row["id"], row["note"]) for row in node.rows("t")} == {
        (1, "row 1"),
        (2, None),
        (9, "row 9"),
    }


@pytest.mark.parametrize("kind", [NAMED_CSV, PARQUET], ids=lambda kind: kind.suffix)
def test_a_file_without_a_required_column_is_reported(
    node: Node, folder: Path, kind: Kind
) -> None:
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": [2]}), stream)
    bad = place_between(folder, kind, stream.getvalue() if kind is PARQUET else b"id\n2\n")
    node.sql(create(folder, kind, strict=False, more=", 'missing_columns' = 'fail'"))

    node.run()

    reason = str(node.show("j")["reason"])
    assert reason.startswith(f'FILE_ERR: file "{bad}": ')
    assert '"note"' in reason
    assert ids(node) == []
    bad.unlink()
    node.sql("RESUME JOB j")
    node.run()
    assert ids(node) == [1, 9]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.suffix}")
def test_a_matching_folder_is_not_loaded_but_its_files_can_match(
    node: Node, folder: Path, kind: Kind
) -> None:
    put(folder, kind, "a", kind.write(1))
    inner = folder / f"b.{kind.suffix}"
    inner.mkdir()
    put(inner, kind, "c", kind.write(2))
    node.sql(create(folder, kind, strict=True))

    node.run()

    assert ids(node) == [1]


@pytest.mark.of_local_files("the file is replaced while a task runs")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.suffix}")
def test_the_new_content_of_a_file_replaced_after_the_listing_is_loaded(
    tmp_path: Path, open_node: OpenNode, folder: Path, kind: Kind
) -> None:
    put(folder, kind, "a", kind.write(1))
    listed = put(folder, kind, "b", kind.write(2))
    fresh = tmp_path / "fresh"
    fresh.write_bytes(kind.write(3, 4))
    replacing = Failing(first=lambda: os.replace(fresh, listed))  # noqa: PTH105 - Path.replace would return a path.
    node = open_node(clock=MovedClock(), work=replacing)
    node.sql(create(folder, kind, strict=True))

    node.run()

    assert ids(node) == [1, 3, 4]
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    assert f'file "{listed}" was changed' in str(node.sql("SHOW EPOCHS FOR j")[-2]["reason"])
    node.catalog.close()


@pytest.mark.of_local_files("the file is replaced while a task runs")
def test_a_file_that_becomes_unreadable_after_the_listing_pauses_the_job(
    tmp_path: Path, open_node: OpenNode, folder: Path
) -> None:
    listed = put(folder, PARQUET, "a", PARQUET.write(1))
    broken = tmp_path / "broken"
    broken.write_bytes(ROWS[:100])
    breaking = Failing(first=lambda: os.replace(broken, listed))  # noqa: PTH105 - Path.replace would return a path.
    node = open_node(clock=MovedClock(), work=breaking)
    node.sql(create(folder, PARQUET, strict=False))

    node.run()

    assert str(node.show("j")["reason"]).startswith(f'FILE_ERR: file "{listed}": ')
    assert ids(node) == []
    listed.write_bytes(PARQUET.write(1))
    node.sql("RESUME JOB j")
    node.run()
    assert ids(node) == [1]
    node.catalog.close()


INFERRED = {
    name: row[:2]
    for name, row in UNREADABLE.items()
    # Column inference does not read values, and does not support arrays.
    if name != "damaged pages" and row[0] is not ARRAY
}


@pytest.mark.parametrize(("kind", "content"), cases(INFERRED, columns=2))
def test_columns_are_not_inferred_from_an_unreadable_file(
    node: Node, folder: Path, kind: Kind, content: bytes
) -> None:
    bad = place_between(folder, kind, content)
    statement = create(folder, kind, strict=True).replace(f"'schema' = '{SCHEMA}', ", "")

    with pytest.raises(UserError) as refused:
        node.sql(statement)

    assert refused.value.code in (Code.FILE_ERR, Code.TYPE_ERR)
    assert node.name_of(bad) in refused.value.message
    assert node.sql("SHOW JOBS") == []
