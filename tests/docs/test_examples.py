"""The examples of the README and the documentation work as shown."""

import ast
import bz2
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sources.kinesis.client import CLIENTS
from penstock.spark.executor import SparkExecutor
from tests.docs.examples import PAGES, ROOT, Example, PageRunner, examples
from tests.node import Node
from tests.servers.buckets import open_client
from tests.servers.kinesis.server import KinesisServer
from tests.servers.moto import MotoServer

ORDERS = (
    '{"id": 1, "customer": {"name": "Ann Lee", "city": "Bern"}, "amount": 12.5}\n'
    '{"id": 2, "customer": {"name": "Bob", "city": "Wien"}, "amount": 8.0}\n'
)
WITH_SQL = [page for page in PAGES if "```sql" in page.read_text("utf-8")]


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def _bucket(moto: MotoServer, spark: SparkExecutor) -> Iterator[None]:
    """Create the bucket of the pages on a local server; the environment has its keys."""
    given = {
        "AWS_ENDPOINT_URL": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "MY_SECRET_KEY": "any",
    }
    client = open_client("s3", moto)
    client.create_bucket(Bucket="my-bucket")
    client.put_object(Bucket="my-bucket", Key="in/2026-11-15.json", Body=ORDERS.encode())
    client.close()
    # Tasks have the environment of the Spark start, plus this dictionary.
    of_tasks = spark.running().context.environment
    with pytest.MonkeyPatch.context() as environment:
        for name, value in given.items():
            environment.setenv(name, value)
            environment.setitem(of_tasks, name, value)
        yield


@pytest.fixture
def runner(
    spark_node: Node, tmp_path: Path, _bucket: None, own_kinesis: KinesisServer
) -> Iterator[PageRunner]:
    """A runner with the files and the bucket that every page assumes."""
    data = tmp_path / "data"
    for name in ("in", "gz", "parquet"):
        (data / name).mkdir(parents=True)
    (data / "in" / "2026-11-15.json").write_text(ORDERS)
    (data / "gz" / "1.json.gz").write_bytes(gzip.compress(ORDERS.encode()))
    (data / "gz" / "2.json.bz2").write_bytes(bz2.compress(b'{"id": 3, "amount": 1.0}\n'))
    amounts = pa.table({"ID": [1, 2], "amount": pa.array([12.5, 8.0], pa.float32())})
    pq.write_table(amounts, data / "parquet" / "1.parquet")
    runner = PageRunner(node=spark_node, root=tmp_path, result=[], kinesis=own_kinesis.endpoint)
    yield runner
    client = runner.names.get("kinesis")
    if client is not None:
        client.close()
    CLIENTS.close()


@pytest.mark.xdist_group("pages")
@pytest.mark.integration
@pytest.mark.parametrize("page", WITH_SQL, ids=shown)
def test_every_example_of_a_page_works_as_shown(page: Path, runner: PageRunner) -> None:
    for example in examples(page):
        try:
            runner.run(example)
        except Exception as error:
            error.add_note(f"{shown(page)}, line {example.line}")
            raise


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_example_that_is_not_run_has_a_reason(page: Path) -> None:
    unrun = [example for example in examples(page) if example.kind == "not run"]

    assert all(example.name for example in unrun)


def test_the_functions_in_the_guide_are_the_tested_functions() -> None:
    code = (Path(__file__).parent / "text_functions.py").read_text("utf-8")
    page = ROOT / "docs/guides/sql.md"

    (block,) = [example.text for example in examples(page) if is_python(example)]

    assert block in code


def is_python(example: Example) -> bool:
    return example.language == "python"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_inside_the_documentation_has_a_target(page: Path) -> None:
    links = re.findall(r"\]\(([^):]+)\)", page.read_text("utf-8"))

    assert not [link for link in links if not has_target(page, link)]


def has_target(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_linked_function_is_in_the_linked_file(page: Path) -> None:
    links = re.findall(r"\[`(\w+(?:\.(?!py`)\w+)?)`\]\(([^)]+\.py)\)", page.read_text("utf-8"))

    assert not [link for link in links if not is_defined(page, *link)]


def is_defined(page: Path, name: str, path: str) -> bool:
    body = ast.parse((page.parent / path).read_text("utf-8")).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part
        ]
        if not found:
            return False
        body = found[0].body
    return True
