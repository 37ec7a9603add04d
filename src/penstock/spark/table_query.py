"""Run a SELECT over tables: Spark finds the tables it names and reads them by our source."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.arrow.types import data_type
from penstock.errors import PenstockError
from penstock.model.query import output_name
from penstock.model.schema import columns_sql
from penstock.spark.job_session import name_view, open_session, select_frame, select_known
from penstock.spark.plan_check import Node, all_nodes, children, class_name, own_nodes, sequence
from penstock.spark.sql_errors import explained_select
from penstock.tables.scan import TableScan

_TABLES_MAX = 100
_TASKS_AFTER_SHUFFLE = 4
# Operators whose outputs are inputs, or derive from attributes that they refer to. Others may
# use their inputs by position.
_TRANSPARENT = frozenset(
    {"Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "Project", "Sort", "Window"}
)

FindScan = Callable[[str], TableScan]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPlace:
    """Where a SELECT runs: the parent session, its own folder, the number of tasks."""

    root: Any
    folder: Path
    tasks: int
    log_file: Path


def select_tables(
    text: str, *, scans: Mapping[str, TableScan], find_scan: FindScan, place: SelectPlace
) -> "pa.Table":
    """Return the rows of a SELECT; ``find_scan`` finds the tables that it names."""
    views = _Views(place)
    for view, scan in scans.items():
        views.name(view, scan)
    try:
        frame = views.frame(text, find_scan=find_scan)
        numbered = _numbered(frame)
        views.carry_needed(numbered)
        rows: pa.Table = numbered.toArrow()
    except PenstockError:
        raise
    except Exception as error:
        raise explained_select(error, text, log_file=place.log_file) from error
    return rows.rename_columns(list(frame.columns))


class _Views:
    """A session in which snapshots of tables are views."""

    def __init__(self, place: SelectPlace) -> None:
        from penstock.spark.table_source import TableSource

        self._place = place
        self._folders: list[Path] = []
        self._session = open_session(place.root, _settings(place))
        self._session.dataSource.register(TableSource)

    def name(self, view: str, scan: TableScan) -> None:
        """Register a snapshot as a view."""
        from penstock.spark.table_source import FOLDER, FORMAT, TASKS, write_snapshot

        # Columns that the SELECT does not use are read as NULL.
        scan = replace(scan, columns=tuple(replace(c, nullable=True) for c in scan.columns))
        folder = self._place.folder / str(len(self._folders))
        write_snapshot(folder, scan)
        self._folders.append(folder)
        reader = self._session.read.format(FORMAT).schema(columns_sql(scan.columns))
        frame = reader.option(FOLDER, str(folder)).option(TASKS, self._place.tasks).load()
        name_view(frame, view)

    def frame(self, text: str, *, find_scan: FindScan) -> Node:
        """Return the frame of a SELECT, after finding every table that it names."""

        def add(name: str) -> str:
            scan = find_scan(name)
            self.name(scan.name, scan)
            return scan.name

        select = partial(select_frame, self._session)
        return select_known(text, select=select, add=add, tables_max=_TABLES_MAX)[0]

    def carry_needed(self, frame: Node) -> None:
        """Set the columns that the frame needs, for the next Spark jobs of this thread."""
        from penstock.spark.table_source import NEEDED, needed_text

        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - No public way.
        text = needed_text(needed_by_folder(plan))
        self._session.sparkContext.setLocalProperty(NEEDED, text)


def _settings(place: SelectPlace) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(place.tasks * _TASKS_AFTER_SHUFFLE),
        "spark.sql.python.filterPushdown.enabled": "true",
    }


def needed_by_folder(plan: Node) -> dict[str, set[str]]:
    """Return the columns of every snapshot that an optimised plan uses."""
    seen = set(_seen(plan))
    needed: dict[str, set[str]] = {}
    for node in all_nodes(plan):
        if _is_scan(node):
            names = needed.setdefault(_folder(node), set())
            names |= {str(a.name()) for a in _outputs(node) if a.exprId().id() in seen}
    return needed


def _seen(plan: Node) -> Iterator[int]:
    """Yield the ids of the attributes that a plan returns or uses."""
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
    """Return the frame with numbered columns; a type that no table has becomes STRING."""
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
    except Exception:  # noqa: BLE001 - Spark and Penstock raise different errors.
        return False
    return True
