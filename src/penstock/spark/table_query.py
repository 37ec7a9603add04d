"""Run a SELECT over tables: Spark says which tables it names, and reads them by our source."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import Code, PenstockError, SelectError, UserError
from penstock.model.query import output_name
from penstock.model.schema import columns_sql
from penstock.spark.sql_errors import explained_select, missing_relation, offset_of, unqualified
from penstock.storage.arrow_types import data_type
from penstock.tables.scan import TableScan

TABLES_MAX = 100

_TASKS_AFTER_SHUFFLE = 4
# Operators whose outputs are their inputs, or are made of what they refer to. Any other may
# take its inputs by their places.
_TRANSPARENT = frozenset(
    {"Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "Project", "Sort", "Window"}
)

FindScan = Callable[[str], TableScan]
Node = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPlace:
    """Where a SELECT is run: the session to branch off, a folder of its own, how many tasks."""

    root: Any
    folder: Path
    tasks: int
    log_file: Path


def select_tables(
    text: str, *, scans: Mapping[str, TableScan], find_scan: FindScan, place: SelectPlace
) -> "pa.Table":
    """Answer the rows of a SELECT; ``find_scan`` is asked for the tables that it names."""
    views = _Views(place)
    for view, scan in scans.items():
        views.name(view, scan)
    try:
        frame = views.frame(text, find_scan=find_scan)
        numbered = _numbered(frame)
        views.leave_needed(numbered)
        rows: pa.Table = numbered.toArrow()
    except PenstockError:
        raise
    except Exception as error:
        raise explained_select(error, text, log_file=place.log_file) from error
    return rows.rename_columns(list(frame.columns))


class _Views:
    """A session in which tables have names."""

    def __init__(self, place: SelectPlace) -> None:
        from penstock.spark.table_source import TableSource

        # pyspark writes every error of a SELECT to the terminal, stack included.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._place = place
        self._folders: list[Path] = []
        self._session = place.root.newSession()
        for key, value in _settings(place).items():
            self._session.conf.set(key, value)
        self._session.dataSource.register(TableSource)

    def name(self, view: str, scan: TableScan) -> None:
        """Let the SELECT find a snapshot by a name."""
        from penstock.spark.table_source import FOLDER, FORMAT, TASKS, write_snapshot

        # What is not looked at is read as NULL.
        scan = replace(scan, columns=tuple(replace(c, nullable=True) for c in scan.columns))
        folder = self._place.folder / str(len(self._folders))
        write_snapshot(folder, scan)
        self._folders.append(folder)
        reader = self._session.read.format(FORMAT).schema(columns_sql(scan.columns))
        frame = reader.option(FOLDER, str(folder)).option(TASKS, self._place.tasks).load()
        frame.createOrReplaceTempView(_quoted(view))

    def frame(self, text: str, *, find_scan: FindScan) -> Node:
        """Answer the frame of a SELECT, once every table that it names was found."""
        # Whatever is no query is refused before it is run.
        self._session._jsparkSession.sessionState().sqlParser().parseQuery(text)  # noqa: SLF001
        found: set[str] = set()
        while True:
            try:
                return self._session.sql(text)
            except Exception as error:
                name = missing_relation(error)
                if name is None or name in found:
                    raise
                if len(found) >= TABLES_MAX:
                    raise _too_many() from error
                scan = _found(name, error, text, find=find_scan)
                found.add(name)
                text = unqualified(text, error, scan.name)
            self.name(scan.name, scan)

    def leave_needed(self, frame: Node) -> None:
        """Tell the source which columns of every table the SELECT looks at."""
        from penstock.spark.table_source import write_needed

        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - No public way.
        for folder, names in needed_by_folder(plan).items():
            write_needed(Path(folder), names)


def _settings(place: SelectPlace) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(place.tasks * _TASKS_AFTER_SHUFFLE),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Tables have names; parquet.`/some/path` is none.
        "spark.sql.runSQLOnFiles": "false",
    }


def _quoted(view: str) -> str:
    return "`" + view.replace("`", "``") + "`"


def _too_many() -> UserError:
    return UserError(f"a SELECT may name {TABLES_MAX} tables", code=Code.TYPE_ERR)


def _found(name: str, error: Exception, text: str, *, find: FindScan) -> TableScan:
    try:
        return find(name)
    except UserError as unknown:
        located = SelectError(
            unknown.message, code=unknown.code, detail=unknown.detail, hint=unknown.hint
        )
        located.offset = offset_of(error, text)
        raise located from error


def needed_by_folder(plan: Node) -> dict[str, set[str]]:
    """Answer the columns of every snapshot that anything in the optimised plan looks at."""
    seen = set(_seen(plan))
    needed: dict[str, set[str]] = {}
    for node in _all(plan):
        if _is_scan(node):
            names = needed.setdefault(_folder(node), set())
            names |= {str(a.name()) for a in _outputs(node) if a.exprId().id() in seen}
    return needed


def _seen(plan: Node) -> Iterator[int]:
    """Yield the numbers of the attributes that are looked at below and at the plan's end."""
    yield from (attribute.exprId().id() for attribute in _outputs(plan))
    for node in _nodes(plan):
        if _is_scan(node):
            continue
        yield from (a.exprId().id() for a in _sequence(node.references().toSeq()))
        if _class(node) not in _TRANSPARENT:
            children = _sequence(node.children())
            yield from (a.exprId().id() for child in children for a in _outputs(child))
        for subquery in _sequence(node.subqueries()):
            yield from _seen(subquery)


def _all(plan: Node) -> Iterator[Node]:
    for node in _nodes(plan):
        yield node
        for subquery in _sequence(node.subqueries()):
            yield from _all(subquery)


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in _sequence(plan.children()):
        yield from _nodes(child)


def _is_scan(node: Node) -> bool:
    return _class(node) == "DataSourceV2ScanRelation"


def _folder(scan: Node) -> str:
    from penstock.spark.table_source import FOLDER

    return str(scan.relation().options().get(FOLDER))


def _outputs(node: Node) -> list[Node]:
    return _sequence(node.output())


def _sequence(sequence: Node) -> list[Node]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _class(node: Node) -> str:
    return str(node.getClass().getSimpleName())


def _numbered(frame: Node) -> Node:
    """Answer the frame with numbered columns, those of a type no table knows as texts."""
    from pyspark.sql.functions import col

    numbered = frame.toDF(*(output_name(at) for at in range(len(frame.columns))))
    return numbered.select(
        *(
            col(field.name) if _known(field.dataType) else col(field.name).cast("string")
            for field in numbered.schema.fields
        )
    )


def _known(kind: Any) -> bool:  # noqa: ANN401 - A type of Spark.
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import NullType, VariantType

    if isinstance(kind, NullType | VariantType):
        return False
    try:
        data_type(to_arrow_type(kind, timezone="UTC"))
    except Exception:  # noqa: BLE001 - Spark and we refuse types in different ways.
        return False
    return True
