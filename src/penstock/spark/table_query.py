"""Run a SELECT over tables in Spark, which reads them with Penstock's own data source."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyspark.sql.functions import col
from pyspark.sql.types import NullType, VariantType

from penstock.errors import PenstockError
from penstock.model.query import output_name
from penstock.model.schema import columns_sql
from penstock.spark.job_session import (
    Frame,
    Session,
    column_type,
    name_view,
    open_session,
    select_frame,
    select_known,
)
from penstock.spark.plan_check import Node, all_nodes, class_name, sequence, used_attributes
from penstock.spark.sql_errors import convert_select_error
from penstock.spark.table_source import (
    FOLDER,
    FORMAT,
    NEEDED,
    TASKS,
    TableSource,
    write_snapshot,
)
from penstock.tables.scan import TableScan

_TABLES_MAX = 100
_TASKS_AFTER_SHUFFLE = 4

FindScan = Callable[[str], TableScan]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPlace:
    """The environment of a SELECT: parent session, own folder, number of tasks."""

    root: Session
    folder: Path
    tasks: int
    log_file: Path


def select_tables(
    text: str, *, scans: Mapping[str, TableScan], find_scan: FindScan, place: SelectPlace
) -> "pa.Table":
    """Return the rows of a SELECT; ``find_scan`` finds the tables that it names."""
    session = _open_session(place)
    folders = (place.folder / str(number) for number in count())

    def add(name: str) -> str:
        scan = find_scan(name)
        _name_scan(session, scan.name, scan, folder=next(folders), tasks=place.tasks)
        return scan.name

    for view, scan in scans.items():
        _name_scan(session, view, scan, folder=next(folders), tasks=place.tasks)
    try:
        frame, _ = select_known(
            text, select=partial(select_frame, session), add=add, tables_max=_TABLES_MAX
        )
        numbered = _numbered(frame)
        plan = numbered._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - No public way.
        session.sparkContext.setLocalProperty(NEEDED, json.dumps(_needed_by_folder(plan)))
        rows: pa.Table = numbered.toArrow()
    except PenstockError:
        raise
    except Exception as error:
        raise convert_select_error(error, text, log_file=place.log_file) from error
    return rows.rename_columns(list(frame.columns))


def _open_session(place: SelectPlace) -> Session:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(place.tasks * _TASKS_AFTER_SHUFFLE),
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    session = open_session(place.root, settings)
    session.dataSource.register(TableSource)
    return session


def _name_scan(
    session: Session, view: str, scan: TableScan, *, folder: Path, tasks: int
) -> None:
    """Register a snapshot as a view of the session."""
    # Columns that the SELECT does not use are read as NULL.
    scan = replace(scan, columns=tuple(replace(c, nullable=True) for c in scan.columns))
    write_snapshot(folder, scan)
    reader = session.read.format(FORMAT).schema(columns_sql(scan.columns))
    name_view(reader.option(FOLDER, str(folder)).option(TASKS, tasks).load(), view)


def _needed_by_folder(plan: Node) -> dict[str, list[str]]:
    """Return the columns that an optimised plan uses, by the folder of the snapshot."""
    used = set(used_attributes(plan, is_reader=_is_scan))
    needed: dict[str, set[str]] = {}
    for node in all_nodes(plan):
        if _is_scan(node):
            names = needed.setdefault(str(node.relation().options().get(FOLDER)), set())
            outputs = sequence(node.output())
            names |= {str(a.name()) for a in outputs if a.exprId().id() in used}
    return {folder: sorted(names) for folder, names in needed.items()}


def _is_scan(node: Node) -> bool:
    return class_name(node) == "DataSourceV2ScanRelation"


def _numbered(frame: Frame) -> Frame:
    """Return the frame with numbered columns; convert unsupported types to STRING."""
    numbered = frame.toDF(*(output_name(at) for at in range(len(frame.columns))))
    return numbered.select(
        *(
            col(field.name).cast("string")
            if isinstance(field.dataType, NullType | VariantType)
            or column_type(field.dataType) is None
            else col(field.name)
            for field in numbered.schema.fields
        )
    )
