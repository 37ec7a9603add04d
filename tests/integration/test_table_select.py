"""SELECT over tables on real Spark: its rows, the files that it reads, its errors."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.control.result import Cell
from penstock.errors import Code, ExternalError, UserError
from penstock.model.job import TableRef
from penstock.spark.executor import SparkExecutor
from penstock.spark.table_query import SelectPlace, select_tables
from penstock.spark.table_source import NEEDED as NEEDED_PROPERTY
from penstock.tables.scan import TableScan, scan_table
from tests.error_values import assert_names, raises
from tests.integration.command import COMMAND, SETTINGS, TIMEOUT_SECONDS
from tests.node import Node, create_job

ORDERS: list[dict[str, Any]] = [
    {"id": 1, "customer": "ann", "price": "2.50", "day": "2026-01-31"},
    {"id": 2, "customer": "bob", "price": None, "day": "2026-01-31"},
    {"id": 3, "customer": "ann", "price": "7.00", "day": "2026-02-01"},
    {"id": 4, "customer": None, "price": "1.25", "day": None},
]
CITIES = [{"customer": "ann", "city": "Aachen"}, {"customer": "cy", "city": "Celle"}]
TABLES = """
CREATE TABLE orders (id BIGINT NOT NULL, customer STRING, price DECIMAL(9,2), day DATE)
PARTITIONED BY (day);
CREATE TABLE city (customer STRING, city STRING);
CREATE TABLE `odd name` (`a b` INT);
"""


def load(
    node: Node, folder: Path, table: str, files: Sequence[Sequence[Mapping[str, Any]]]
) -> None:
    """Load files of rows into a table, one epoch and therefore one version per file."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(files):
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    node.sql(
        f"CREATE JOB load_{table} PROPERTIES('s3.max_batch_files' = '1') "  # noqa: S608
        "ON STREAMING DO "
        f"INSERT INTO {table} SELECT * FROM "
        f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')"
    )
    node.run()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkExecutor) -> Iterator[Node]:
    """A node with orders in three files, partitioned by day, and cities. Read-only."""
    root = tmp_path_factory.mktemp("shop")
    node = Node(root / "home", spark=spark)
    node.sql(TABLES)
    load(node, root / "orders", "orders", [ORDERS[:2], ORDERS[2:3], ORDERS[3:]])
    load(node, root / "cities", "city", [CITIES])
    yield node
    node.catalog.close()


def rows(node: Node, select: str) -> list[tuple[Cell, ...]]:
    return [tuple(row.values()) for row in node.sql(select)]


def location(node: Node, table: str) -> Path:
    record = node.catalog.table(table)
    assert record is not None
    return Path(record.location)


FOUND: list[tuple[str, list[tuple[Cell, ...]]]] = [
    (
        "SELECT id, upper(customer) FROM orders WHERE id < 3 ORDER BY 1",
        [(1, "ANN"), (2, "BOB")],
    ),
    ("SELECT * FROM orders WHERE id = 1", [(1, "ann", "2.50", "2026-01-31")]),
    ("SELECT count(*) FROM orders", [(4,)]),
    ("SELECT count(*) FROM orders WHERE day IS NULL", [(1,)]),
    ("SELECT 1 FROM orders LIMIT 2", [(1,), (1,)]),
    (
        "SELECT id, city FROM orders o LEFT JOIN default.city c USING (customer) ORDER BY id",
        [(1, "Aachen"), (2, None), (3, "Aachen"), (4, None)],
    ),
    (
        "SELECT customer, sum(price) AS total, count(*) FROM orders GROUP BY customer "
        "ORDER BY total DESC NULLS LAST LIMIT 2",
        [("ann", "9.50", 2), (None, "1.25", 1)],
    ),
    (
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id DESC) FROM orders "
        "WHERE customer = 'ann' ORDER BY id",
        [(1, 2), (3, 1)],
    ),
    (
        "WITH x AS (SELECT max(id) AS m FROM orders) SELECT id FROM orders, x WHERE id = m",
        [(4,)],
    ),
    (
        "SELECT * FROM city UNION ALL SELECT customer, 'x' FROM orders WHERE id = 2 ORDER BY 1",
        [("ann", "Aachen"), ("bob", "x"), ("cy", "Celle")],
    ),
    ("SELECT * FROM city UNION SELECT * FROM city ORDER BY 1 LIMIT 1", [("ann", "Aachen")]),
    ("SELECT customer, city FROM city EXCEPT SELECT 'cy', 'Celle'", [("ann", "Aachen")]),
    (
        "SELECT a.id FROM ORDERS a JOIN orders b ON a.id = b.id + 1 ORDER BY 1",
        [(2,), (3,), (4,)],
    ),
    (
        "SELECT id FROM orders WHERE customer IN (SELECT customer FROM city) ORDER BY 1",
        [(1,), (3,)],
    ),
    ("SELECT (SELECT max(city) FROM city) AS c", [("Celle",)]),
    (
        "SELECT day, count(id) FROM orders GROUP BY day ORDER BY day",
        [(None, 1), ("2026-01-31", 2), ("2026-02-01", 1)],
    ),
    ("SELECT count(DISTINCT customer), max(id) FROM orders", [(2, 4)]),
    ("SELECT x FROM orders LATERAL VIEW explode(array(id, 9)) AS x WHERE id = 1", [(1,), (9,)]),
    ("FROM orders SELECT id WHERE id > 3", [(4,)]),
    ("VALUES (1, 'a'), (2, NULL)", [(1, "a"), (2, None)]),
    ("(SELECT 1) UNION (SELECT 1)", [(1,)]),
    ("SELECT orders.id FROM default.`orders` WHERE orders.id = 4", [(4,)]),
    ("SELECT NULL, true, INTERVAL 1 MONTH", [(None, True, "INTERVAL '1' MONTH")]),
    ("SELECT *, count(*) OVER () FROM `odd name`", []),
    ("SELECT sum(`a b`), count(*) FROM default.`Odd Name`", [(None, 0)]),
]


@pytest.mark.parametrize(("select", "found"), FOUND)
def test_spark_runs_a_select_over_tables(
    shop: Node, select: str, found: list[tuple[Cell, ...]]
) -> None:
    assert rows(shop, select) == found


@pytest.mark.parametrize(
    ("select", "named", "place"),
    [
        ("SELECT nix FROM orders", ("`nix`",), "Line 1, column 8."),
        ("SELECT '😀',\n nix FROM city", ("`nix`",), "Line 2, column 2."),
        (
            "SELECT 1; SELECT id\nFROM ordres",
            ('"ordres"',),
            "Line 2, column 6.",
        ),
        ("SELECT id FROM city WHER x", ("'x'",), "Line 1, column 26."),
        ("SELECT CAST(city AS INT) FROM city", ("Aachen",), "Line 1, column 8."),
        (
            "SELECT * FROM city VERSION AS OF 0 c, nix",
            ('"nix"',),
            "Line 1, column 39.",
        ),
        (
            "FROM city INSERT INTO orders SELECT *",
            ("Syntax",),
            "Line 1, column 11.",
        ),
        ("SELECT * FROM csv.`/etc/passwd`", ("does not exist",), "Line 1, column 15."),
    ],
)
def test_a_spark_error_is_reported_with_value_and_place(
    shop: Node, select: str, named: tuple[str, ...], place: str
) -> None:
    with pytest.raises(UserError) as caught:
        shop.sql(select)

    assert_names(caught.value.message, *named)
    assert caught.value.detail == place
    assert "\n" not in caught.value.message


def test_a_similar_name_is_suggested(shop: Node) -> None:
    with pytest.raises(UserError) as caught:
        shop.sql("SELECT * FROM ordres")

    assert caught.value.code is Code.META_NOT_FOUND_ERR
    assert_names(caught.value.hint, '"orders"', "city, odd name, orders")


def test_an_older_version_can_be_read_together_with_the_newest(shop: Node) -> None:
    newest = shop.sql("DESCRIBE DETAIL orders")[0]["version"]
    versions = [
        rows(shop, f"SELECT count(*) FROM orders VERSION AS OF {version}")[0][0]  # noqa: S608
        for version in range(int(str(newest)) + 1)
    ]

    assert versions == sorted(versions, key=str)
    assert set(versions) == {0, 2, 3, 4}
    joined = "SELECT orders.id, n.id FROM orders VERSION AS OF 0 RIGHT JOIN orders n USING (id)"
    assert len(rows(shop, joined)) == 4


def test_a_missing_version_is_reported(shop: Node) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, "version 99") as caught:
        shop.sql("SELECT * FROM orders VERSION AS OF 99")

    assert caught.value.code is Code.META_NOT_FOUND_ERR


@pytest.fixture
def incomplete(shop: Node, tmp_path: Path) -> Iterator[Node]:
    """The shop without the data files of January."""
    folder = location(shop, "orders") / "day=2026-01-31"
    shutil.move(folder, tmp_path / "away")
    yield shop
    shutil.move(tmp_path / "away", folder)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("day = DATE'2026-02-01'", [3]),
        ("day > '2026-01-31'", [3]),
        ("day IS NULL", [4]),
        ("day IN (DATE'2026-02-01', DATE'2027-01-01')", [3]),
        ("id >= 3", [3, 4]),
        ("id BETWEEN 3 AND 3", [3]),
        ("price > 2.50 AND price < 8", [3]),
        ("customer LIKE 'c%'", []),
    ],
)
def test_files_without_matching_rows_are_not_read(
    incomplete: Node, condition: str, ids: list[int]
) -> None:
    select = f"SELECT id FROM orders WHERE {condition} ORDER BY id"  # noqa: S608
    found = rows(incomplete, select)

    assert [row[0] for row in found] == ids


def test_a_missing_data_file_is_reported(incomplete: Node) -> None:
    with raises(ExternalError, Code.SPARK_ERR, "/day=2026-01-31/"):
        incomplete.sql("SELECT * FROM orders")


NEEDED = [
    ("SELECT id FROM orders WHERE day IS NULL ORDER BY price", ["day", "id", "price"]),
    ("SELECT * FROM orders", ["customer", "day", "id", "price"]),
    ("SELECT count(*) FROM orders", []),
    ("SELECT 1 FROM orders WHERE id > (SELECT max(id) FROM orders)", ["id"]),
    ("SELECT a.id FROM orders a JOIN orders b ON a.customer = b.customer", ["customer", "id"]),
    ("SELECT id FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders)", ["id"]),
    ("SELECT id, day FROM orders UNION SELECT id, day FROM orders", ["day", "id"]),
    ("SELECT max(customer) OVER (PARTITION BY day) FROM orders", ["customer", "day"]),
]


@pytest.mark.parametrize(("select", "names"), NEEDED)
def test_columns_that_a_select_does_not_use_are_not_read(
    shop: Node, spark: SparkExecutor, tmp_path: Path, select: str, names: list[str]
) -> None:
    place = SelectPlace(
        root=spark.running().sessions(),
        folder=tmp_path / "select",
        tasks=2,
        log_file=tmp_path / "log",
    )

    select_tables(
        select, scans={"orders": scan_of(shop)}, find_scan=unreadable_scan, place=place
    )

    needed = json.loads(spark.running().context.getLocalProperty(NEEDED_PROPERTY))
    assert needed == {str(place.folder / "0"): names}


def scan_of(node: Node) -> TableScan:
    record = node.catalog.table("orders")
    assert record is not None
    assert node.tables is not None
    table = TableRef(name=record.name, id=record.id, location=record.location)
    return scan_table(table, tables=node.tables)


def unreadable_scan(name: str) -> TableScan:
    raise AssertionError(name)


def test_the_command_prints_that_spark_is_starting(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "penstock.toml").write_text(SETTINGS)
    terminal, end = os.openpty()

    statements = "CREATE TABLE t (a INT); SELECT count(*) AS n, 'é' FROM t"

    done = subprocess.run(
        [str(COMMAND), "--home", str(home), "sql", "--format", "csv", "-e", statements],
        stdout=subprocess.PIPE,
        stderr=end,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )

    os.close(end)
    assert os.read(terminal, 1000).decode() == "starting Spark …\r\n"
    assert done.stdout.decode() == "message\ntable t created\nn,é\n0,é\n"
    os.close(terminal)


TYPES = {
    "o": ("BOOLEAN", True, True),
    "t": ("TINYINT", -128, -128),
    "s": ("SMALLINT", 32767, 32767),
    "i": ("INT", -2147483648, -2147483648),
    "l": ("BIGINT", 9223372036854775807, 9223372036854775807),
    "f": ("FLOAT", 0.1, 0.1),
    "g": ("DOUBLE", 1e300, 1e300),
    "d": ("DECIMAL(38,10)", -1.5, "-1.5000000000"),
    "e": ("DECIMAL(38,0)", 10**38 - 1, "9" * 38),
    "x": ("STRING", "🙂 it's", "🙂 it's"),
    "b": ("BINARY", "bytes", "bytes"),
    "day": ("DATE", "0001-01-01", "0001-01-01"),
    "ts": ("TIMESTAMP", "2026-11-15T12:30:00.123456+02:00", "2026-11-15 10:30:00.123456"),
    "n": ("TIMESTAMP_NTZ", "9999-12-31 23:59:59", "9999-12-31 23:59:59"),
    "a": ("ARRAY<INT>", [1, None], "[1, null]"),
    "m": ("MAP<STRING, BIGINT>", {"a": 1, "": None}, '{"a": 1, "": null}'),
    "r": ("STRUCT<id: INT, name: STRING>", {"id": 1, "name": None}, '{"id": 1, "name": null}'),
    "q": (
        "ARRAY<STRUCT<at: TIMESTAMP_NTZ, by: MAP<STRING, DECIMAL(38,10)>>>",
        [{"at": "2026-01-01 00:00:00", "by": {"a": 1}}, None],
        '[{"at": "2026-01-01 00:00:00", "by": {"a": "1.0000000000"}}, null]',
    ),
}


def test_every_type_and_null_can_be_read_back(spark_node: Node, folder: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items())
    row = {name: value for name, (_, value, _) in TYPES.items()}
    (folder / "a.json").write_text(json.dumps(row) + "\n{}\n")
    spark_node.sql(
        f"CREATE TABLE t ({columns}); "  # noqa: S608
        "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * "
        f"FROM FILES('uri' = 'file://{folder}/*', 'format' = 'json', 'schema' = '{columns}')"
    )
    spark_node.run()

    found = spark_node.sql("SELECT * FROM t ORDER BY i NULLS LAST")

    assert found[0] == {name: expected for name, (_, _, expected) in TYPES.items()}
    assert found[1] == dict.fromkeys(TYPES)
    assert rows(spark_node, "SELECT r.id, m['a'], size(a) FROM t WHERE g > 1") == [(1, 1, 2)]


ODD = ["a/b", "50%", "", " ", "x=y", "é🙂", "'", "..", None]


def test_unusual_partition_values_can_be_read_back(spark_node: Node, tmp_path: Path) -> None:
    spark_node.sql("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    written = [{"id": number, "p": value} for number, value in enumerate(ODD)]
    load(spark_node, tmp_path / "in", "t", [written])

    found = {row[0]: row[1] for row in rows(spark_node, "SELECT id, p FROM t")}

    assert [found[number] for number in range(len(ODD))] == ODD
    assert rows(spark_node, "SELECT id FROM t WHERE p = 'a/b'") == [(0,)]
    assert rows(spark_node, "SELECT id FROM t WHERE p = ''") == [(2,)]
    assert rows(spark_node, "SELECT count(*) FROM t WHERE p <> '50%'") == [(7,)]


REJECTS = """SELECT line, stage, raw FROM rejects("job" = "j") ORDER BY line"""


@pytest.fixture
def lenient(spark_node: Node, folder: Path) -> Node:
    """A node with a job that skips rows it cannot load."""
    (folder / "a.json").write_text('{"id": 1, "note": "a"}\n')
    strict = ("session.enable_insert_strict", "false")
    spark_node.sql("CREATE TABLE t (id INT NOT NULL, note STRING)")
    spark_node.sql(create_job(folder, properties=[strict]))
    return spark_node


def test_rejects_are_read_by_the_name_of_their_job(lenient: Node, folder: Path) -> None:
    assert rows(lenient, REJECTS) == []
    (folder / "b.json").write_bytes(b'null\n{"id": 3000000000, "note": "b"}\n')

    lenient.run()

    assert rows(lenient, REJECTS) == [
        (1, "reader", "null"),
        (2, "writer", '{"id": 3000000000, "note": "b"}'),
    ]
    both = "SELECT count(*), count(rejects.raw) FROM rejects('job' = 'j'), t"
    assert rows(lenient, both) == [(2, 2)]


def test_rejects_of_an_unknown_job_are_refused(shop: Node) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"j"') as caught:
        shop.sql(REJECTS)

    assert caught.value.code is Code.META_NOT_FOUND_ERR
