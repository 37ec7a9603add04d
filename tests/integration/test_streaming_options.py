"""Options and clauses of streaming tables, from the statement to the rows."""

import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.clock import SystemClock
from penstock.control.result import Cell
from penstock.epochs.progress import Progress, Step
from penstock.errors import Code
from penstock.settings.settings import Settings
from penstock.spark.executor import SparkExecutor
from penstock.streaming.query import QuerySettings, StreamSession
from penstock.tables.delta import DeltaTables
from penstock.tables.log import read_commit
from tests.error_values import assert_reason
from tests.integration.driving import TIMEOUT_SECONDS, rounds_until, supervised
from tests.mirrored_node import OpenNode
from tests.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("streaming options")]

CREATE_EVENTS = "CREATE TABLE events (id BIGINT, k STRING)"
# By streaming table: where it starts, and which ids of 1 to 4 it reads. Id 1 is in version 1,
# and id 4 comes after CREATE.
STARTS = {
    "earliest": ("earliest", [1, 2, 3, 4]),
    "latest": ("Latest", [4]),
    "versioned": ("version 2", [2, 3, 4]),
    "timed": ("timestamp ''{third}''", [3, 4]),
}
COPIED = ("latest", "versioned")
ABOUT = "the ids, by key"


def location(node: Node, table: str) -> str:
    """Return the location of a table."""
    record = node.catalog.table(table)
    assert record is not None
    return record.location


def put(node: Node, *ids: int, table: str = "events") -> None:
    """Append rows to a table in one file."""
    rows = {"id": pa.array(ids, pa.int64()), "k": [f"key {number % 2}" for number in ids]}
    write_deltalake(location(node, table), pa.table(rows), mode="append")


def ids(node: Node, table: str) -> list[int]:
    """Return the ids in a table."""
    return sorted(row["id"] for row in node.rows(table))


def shown(node: Node, table: str) -> str:
    """Return the statement that SHOW CREATE prints."""
    (row,) = node.sql(f"SHOW CREATE STREAMING TABLE {table}")
    return str(row["create_statement"])


# Starts and clauses; all tables share one run


@pytest.fixture(scope="module")
def node(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node whose streaming tables read ids 1 to 3, which were there at CREATE, and id 4."""
    home = tmp_path_factory.mktemp("options") / "home"
    node = Node(home, spark=spark)
    node.sql(CREATE_EVENTS)
    for number in (1, 2, 3):
        put(node, number)
    clauses = {
        "earliest": "WITH ('max_bytes_per_epoch' = '1', 'starting' = '{start}')",
        "timed": f"PARTITIONED BY (k) COMMENT '{ABOUT}' LOCATION '{home.parent / 'placed'}' "
        "WITH ('starting' = '{start}')",
    }
    for name, (starting, _) in STARTS.items():
        start = starting.format(third=time_of(node, version=3))
        written = clauses.get(name, "WITH ('starting' = '{start}')")
        create(node, name, written.replace("{start}", start))
    for name in COPIED:
        node.sql(shown(node, name).replace(f"TABLE {name}", f"TABLE copy_of_{name}"))
    put(node, 4)
    node.run()
    return node


def create(node: Node, name: str, clauses: str) -> None:
    """Create a streaming table with these clauses."""
    query = "SELECT id, k FROM STREAM events"
    node.sql(f"CREATE STREAMING TABLE {name} {clauses} AS {query}")


def time_of(node: Node, *, version: int) -> str:
    """Return the time of a commit to the events."""
    assert isinstance(node.tables, DeltaTables)
    commit = read_commit(node.tables.folder(location(node, "events")), version)
    assert commit is not None
    return commit.committed_at.isoformat()


@pytest.mark.parametrize("name", STARTS)
def test_a_streaming_table_reads_the_rows_from_its_start_on(node: Node, name: str) -> None:
    assert ids(node, name) == STARTS[name][1]


@pytest.mark.parametrize("name", COPIED)
def test_the_statement_of_show_create_starts_at_the_same_row(node: Node, name: str) -> None:
    assert ids(node, f"copy_of_{name}") == STARTS[name][1]
    assert shown(node, f"copy_of_{name}") == shown(node, name).replace(
        f"TABLE {name}", f"TABLE copy_of_{name}"
    )


def test_show_create_omits_the_start_if_it_is_the_default(node: Node) -> None:
    assert "starting" not in shown(node, "earliest")
    assert "'starting' = 'version 2'" in shown(node, "versioned")
    assert "'starting' = 'timestamp ''2" in shown(node, "timed")


def test_an_epoch_reads_one_file_if_the_maximum_size_is_below_a_file(node: Node) -> None:
    epochs = node.sql("SHOW CHECKPOINTS FOR earliest")

    assert [row["rows_in"] for row in epochs] == [1, 1, 1, 1]
    assert ids(node, "earliest") == [1, 2, 3, 4]


def test_a_created_streaming_table_has_its_location_partitions_and_comment(
    node: Node,
) -> None:
    table = DeltaTable(node.home.parent / "placed")

    assert table.metadata().partition_columns == ["k"]
    assert table.metadata().description == ABOUT
    assert Path(location(node, "timed")) == node.home.parent / "placed"


# Options that pause a streaming table


def row_of(node: Node, name: str) -> dict[str, Cell]:
    """Return the row of SHOW STREAMING TABLES."""
    (row,) = node.sql(f"SHOW STREAMING TABLES LIKE '{name}'")
    return row


def alter(node: Node, name: str, key: str, value: str) -> None:
    """Alter an option of a paused streaming table, and run it again."""
    node.sql(
        f"ALTER STREAMING TABLE {name} SET ('{key}' = '{value}'); RESUME STREAMING TABLE {name}"
    )
    node.run()


def test_a_table_paused_by_a_rewrite_continues_after_it_is_altered_to_skip_rewrites(
    spark_node: Node,
) -> None:
    spark_node.sql(CREATE_EVENTS)
    create(spark_node, "copied", "")
    put(spark_node, 1, 2)
    spark_node.run()
    DeltaTable(location(spark_node, "events")).delete("id = 1")
    put(spark_node, 3)
    spark_node.run()
    paused, before = row_of(spark_node, "copied"), ids(spark_node, "copied")

    alter(spark_node, "copied", "rewrites", "skip")

    assert paused["state"] == "PAUSED"
    assert_reason(paused["reason"], Code.SOURCE_REWRITTEN_ERR, '"events"')
    assert before == [1, 2]
    assert ids(spark_node, "copied") == [1, 2, 3]


def test_a_static_table_that_grows_beyond_the_maximum_pauses_the_streaming_table(
    spark_node: Node,
) -> None:
    spark_node.sql(f"{CREATE_EVENTS}; CREATE TABLE names (id BIGINT, k STRING)")
    put(spark_node, 1, table="names")
    spark_node.sql(
        "CREATE STREAMING TABLE named WITH ('lookup_max_bytes' = '1500') AS "
        "SELECT e.id FROM STREAM events AS e JOIN names AS n ON n.id = e.id"
    )
    put(spark_node, 1)
    spark_node.run()
    put(spark_node, *range(2, 2_000), table="names")
    put(spark_node, 2)
    spark_node.run()
    paused, before = row_of(spark_node, "named"), ids(spark_node, "named")

    alter(spark_node, "named", "lookup_max_bytes", "1MB")

    assert paused["state"] == "PAUSED"
    assert_reason(paused["reason"], Code.OPTION_ERR, '"names"', "1500")
    assert before == [1]
    assert ids(spark_node, "named") == [1, 2]


# Memory and wakes


def test_the_setting_of_the_state_memory_is_a_setting_of_the_session_of_spark(
    spark: SparkExecutor, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, state_memory="48MB")
    given = QuerySettings(parallelism=1, state_memory_mb=settings.state_memory_mb)

    session = StreamSession(spark.running().sessions(), given, checkpoint=tmp_path)

    conf = session.session.conf
    store = "spark.sql.streaming.stateStore.rocksdb"
    assert conf.get(f"{store}.maxMemoryUsageMB") == "48"
    assert conf.get(f"{store}.boundedMemoryUsage") == "true"


class WokenClock(SystemClock):
    """A clock of runners whose waits do not end by time, only by an event."""

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        if threading.current_thread().name.startswith("runner-"):
            return event.wait(TIMEOUT_SECONDS)
        return super().wait(event, timeout)


def test_a_commit_of_this_node_wakes_the_streaming_tables_that_read_the_table(
    open_node: OpenNode, spark: SparkExecutor
) -> None:
    node = open_node(spark=spark, clock=WokenClock())
    node.sql(CREATE_EVENTS)
    create(node, "first", "")
    node.sql("CREATE STREAMING TABLE second AS SELECT id, k FROM STREAM first")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda reports: all(is_idle(r.progress) for r in reports))

        put(node, 1)
        node.sql("REFRESH STREAMING TABLE first")
        rounds_until(supervisor, lambda _: node.job("second").epoch_committed == 1)

    assert ids(node, "second") == [1]


def is_idle(progress: Progress | None) -> bool:
    return progress is not None and progress.step is Step.IDLE
