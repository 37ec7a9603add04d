"""Run a SELECT over tables: Spark says which tables it names, and reads them by our source."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.arrow.types import data_type
from penstock.errors import Code, PenstockError, UserError
from penstock.model.query import output_name
from penstock.model.schema import columns_sql
from penstock.spark.plan_check import Node, all_nodes, children, class_name, own_nodes, sequence
from penstock.spark.query_session import name_view, open_session, select_frame
from penstock.spark.sql_errors import explained_select, located, missing_relation, unqualified
from penstock.tables.scan import TableScan

TABLES_MAX = 100

_TASKS_AFTER_SHUFFLE = 4
# Operators whose outputs are their inputs, or are made of what they refer to. Any other may
# take its inputs by their places.
_TRANSPARENT = frozenset(
    {"Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "Project", "Sort", "Window"}
)

FindScan = Callable[[str], TableScan]


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

        self._place = place
        self._folders: list[Path] = []
        self._session = open_session(place.root, _settings(place))
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
        name_view(frame, view)

    def frame(self, text: str, *, find_scan: FindScan) -> Node:
        """Answer the frame of a SELECT, once every table that it names was found."""
        found: set[str] = set()
        while True:
            try:
                return select_frame(self._session, text)
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
    }


def _too_many() -> UserError:
    return UserError(f"a SELECT may name {TABLES_MAX} tables", code=Code.TYPE_ERR)


def _found(name: str, error: Exception, text: str, *, find: FindScan) -> TableScan:
    try:
        return find(name)
    except UserError as unknown:
        raise located(unknown, error, text) from error


def needed_by_folder(plan: Node) -> dict[str, set[str]]:
    """Answer the columns of every snapshot that anything in the optimised plan looks at."""
    seen = set(_seen(plan))
    needed: dict[str, set[str]] = {}
    for node in all_nodes(plan):
        if _is_scan(node):
            names = needed.setdefault(_folder(node), set())
            names |= {str(a.name()) for a in _outputs(node) if a.exprId().id() in seen}
    return needed


def _seen(plan: Node) -> Iterator[int]:
    """Yield the numbers of the attributes that are looked at below and at the plan's end."""
    yield from (attribute.exprId().id() for attribute in _outputs(plan))
    for node in own_nodes(plan):
        if _is_scan(node):
            continue
        yield from (a.exprId().id() for a in sequence(node.references().toSeq()))
        if class_name(node) not in _TRANSPARENT:
            below = children(node)
            yield from (a.exprId().id() for child in below for a in _outputs(child))
        for subquery in sequence(node.subqueries()):
            yield from _seen(subquery)


def _is_scan(node: Node) -> bool:
    return class_name(node) == "DataSourceV2ScanRelation"


def _folder(scan: Node) -> str:
    from penstock.spark.table_source import FOLDER

    return str(scan.relation().options().get(FOLDER))


def _outputs(node: Node) -> list[Node]:
    return sequence(node.output())


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
