"""Build the definition of a streaming table or flow, checked against the real tables."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from penstock.catalog.catalog import TableRecord
from penstock.control.define import require_time_zone
from penstock.control.execute import Services
from penstock.control.find import find_table, located
from penstock.control.result import StreamAnalyzer
from penstock.control.tables import checked_watermark
from penstock.errors import Code, InvariantError, SelectError, UserError
from penstock.model.cadence import require_cadence
from penstock.model.job import (
    JobDefinition,
    JobState,
    SourceRef,
    StreamingQuery,
    StreamView,
    TableRef,
    TargetColumn,
)
from penstock.model.job_kinds import (
    JobKind,
    OutputMode,
    StreamingTableProperties,
)
from penstock.model.options import all_options, option_fields, option_key, parse_options
from penstock.model.query import Lookup, StreamRequest, output_name
from penstock.model.schema import Column
from penstock.model.split import Progress
from penstock.model.text import quoted_name
from penstock.sources.registry import source_kind, source_options, source_ref
from penstock.sources.source import StartRequest, TableOpener
from penstock.sql.lexer import TokenKind, read_script, tokenize
from penstock.sql.statements import (
    CreateFlow,
    CreateStreamingTable,
    StreamQueryText,
    StreamUse,
)
from penstock.tables.scan import pin

_SOURCE = "TABLE_LOG"
_TASKS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a statement: of the table, of the streams, and the start position."""

    properties: StreamingTableProperties
    source: Mapping[str, str]
    start: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One STREAM of a query with its table."""

    use: StreamUse
    record: TableRecord
    view: StreamView


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedQuery:
    """A checked query with its streams and static tables."""

    query: StreamingQuery
    streams: tuple[Stream, ...]
    lookups: tuple[Lookup, ...]


def stream_options(pairs: Sequence[tuple[str, str]], *, kind: JobKind) -> StreamOptions:
    """Sort and parse the options of a statement."""
    log = source_kind(_SOURCE)
    starts = _keys(log.start_options)
    own = tuple(key for key in _keys(log.options) if key not in (*log.fixed, *starts))
    given = dict(pairs)
    start = {key: given.pop(key) for key in starts if key in given}
    source = {key: given.pop(key) for key in own if key in given}
    properties: StreamingTableProperties = parse_options(
        StreamingTableProperties, given.items(), what=f"a {kind.noun}", also=(*starts, *own)
    )
    require_time_zone(properties.time_zone, key="session.time_zone")
    require_cadence(properties, measures=log.measures)
    return StreamOptions(properties=properties, source=source, start=start)


def _keys(options: type | None) -> tuple[str, ...]:
    return () if options is None else tuple(map(option_key, option_fields(options)))


def same_query(text: str, other: str) -> bool:
    """Return whether two queries differ only in spaces, comments and the case of words."""
    return _folded_tokens(text) == _folded_tokens(other)


def _folded_tokens(text: str) -> list[tuple[TokenKind, str]]:
    return [
        (token.kind, token.text.lower() if token.kind is TokenKind.WORD else token.text)
        for token in tokenize(read_script(text))
    ]


def changed_option(
    definition: JobDefinition, options: StreamOptions
) -> tuple[str, str, str] | None:
    """Return the first option that differs from a definition, with its values before and after.

    Options that are not given have their default values.
    """
    log = source_kind(definition.source.kind)
    fixed = {key: text for key, text in definition.source.options if key in log.fixed}
    source = parse_options(
        log.options, {**options.source, **options.start, **fixed}.items(), what="STREAM"
    )
    before = [
        *all_options(definition.properties),
        *_folded_options(source_options(definition.source)),
    ]
    after = [*all_options(options.properties), *_folded_options(source)]
    changed = (
        (key, old, new)
        for (key, old), (_, new) in zip(before, after, strict=True)
        if old != new
    )
    return next(changed, None)


def _folded_options(source: object) -> list[tuple[str, str]]:
    """Return the options of the streams; spaces and the case of letters have no meaning."""
    return [(key, " ".join(text.lower().split())) for key, text in all_options(source)]


def define_query(
    query: StreamQueryText, *, target: str, options: StreamOptions, services: Services
) -> DefinedQuery:
    """Analyse a query that writes to a table, and check it against the tables that it reads."""
    streams = _streams(query, target=target, services=services)
    lookups: list[Lookup] = []

    def find_lookup(name: str) -> Lookup:
        record = find_table(name.removeprefix("default."), catalog=services.catalog)
        if record.name == target:
            raise _reads_itself(target)
        table = TableRef(name=record.name, id=record.id, location=record.location)
        limit = options.properties.lookup_bytes_max
        lookups.append(pin(table, tables=services.tables, bytes_max=limit))
        return lookups[-1]

    request = StreamRequest(
        text=_with_views(query.text, streams),
        views=tuple(stream.view for stream in streams),
        output=options.properties.output,
        state_ttl=options.properties.state_ttl,
        parallelism=options.properties.parallelism
        or min(services.tasks_max or _TASKS_MAX, _TASKS_MAX),
        time_zone=options.properties.time_zone,
        python_udfs=options.properties.python_udfs,
    )
    try:
        found = _analyzer(services).analyse(request, find_lookup=find_lookup)
    except SelectError as error:
        raise located(error, query.text, select_at=query.at) from error
    found = replace(found, checkpoint_id=str(uuid.uuid4()))
    return DefinedQuery(query=found, streams=streams, lookups=tuple(lookups))


def try_query(
    defined: DefinedQuery, *, properties: StreamingTableProperties, services: Services
) -> None:
    """Run one empty epoch of the query in a temporary checkpoint."""
    _analyzer(services).try_epoch(
        defined.query,
        time_zone=properties.time_zone,
        python_udfs=properties.python_udfs,
        lookups=defined.lookups,
    )


def _analyzer(services: Services) -> StreamAnalyzer:
    if services.open_stream_analyzer is None:
        raise InvariantError("streaming tables need Spark")
    return services.open_stream_analyzer()


def _streams(query: StreamQueryText, *, target: str, services: Services) -> tuple[Stream, ...]:
    if not query.streams:
        raise UserError(
            "the query must read at least one table with STREAM",
            code=Code.NOT_SUPPORTED_ERR,
            hint="Write FROM STREAM t. Without STREAM, every epoch reads the whole table.",
        )
    return tuple(
        _stream(use, number, query=query, target=target, services=services)
        for number, use in enumerate(query.streams, start=1)
    )


def _stream(
    use: StreamUse, number: int, *, query: StreamQueryText, target: str, services: Services
) -> Stream:
    # The target of CREATE does not exist yet.
    if use.table == target:
        raise _reads_itself(target)
    if use.table in _names_of_with(query.text):
        raise UserError(
            f'"{use.table}" cannot be read with STREAM, because WITH defines it',
            code=Code.NOT_SUPPORTED_ERR,
            hint="Write STREAM inside the query of WITH.",
        )
    record = find_table(use.table, catalog=services.catalog)
    keyed = keyed_writer(record, services.catalog.jobs())
    if keyed is not None:
        raise UserError(
            f'table "{record.name}" cannot be read with STREAM, because its rows are updated',
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"Read it without STREAM, or stream the tables that {keyed.name} reads.",
        )
    columns = services.tables.open(record.location).columns()
    event_time, delay_ms = _event_time(use, record, columns)
    view = StreamView(
        split=f"s{number}",
        view=_view_name(record, number, query.text),
        columns=columns,
        event_time=event_time,
        delay_ms=delay_ms,
    )
    return Stream(use=use, record=record, view=view)


def _names_of_with(text: str) -> set[str]:
    """Return the names that WITH can define: those before ``AS (``."""
    tokens = tokenize(read_script(text))
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        name.text.lower()
        for name, word, bracket in triples
        if word.keyword == "AS" and bracket.is_symbol("(")
    }


def _view_name(record: TableRecord, number: int, text: str) -> str:
    """Return a name for the view of a stream; the query does not contain the name."""
    name = f"{record.name.rpartition('.')[2]}__{number}"
    while name.lower() in text.lower():
        name += "_"
    return name


def keyed_writer(record: TableRecord, jobs: Sequence[JobState]) -> JobState | None:
    """Return the streaming table that updates rows of a table; None if there is none."""
    for state in jobs:
        query = state.definition.streaming
        keyed = query is not None and query.output is OutputMode.UPDATE
        if keyed and state.definition.table.id == record.id:
            return state
    return None


def _reads_itself(target: str) -> UserError:
    return UserError(
        f'streaming table "{target}" cannot read itself',
        code=Code.NOT_SUPPORTED_ERR,
        hint="Read the tables that it is computed from.",
    )


def _event_time(
    use: StreamUse, record: TableRecord, columns: Sequence[Column]
) -> tuple[str | None, int]:
    """Return the event time of a stream, from the query or otherwise from the table."""
    given = checked_watermark(use.watermark, table=record.name, columns=columns)
    if given is None:
        return record.watermark_column, record.watermark_delay_ms
    return given.column, given.delay_ms


def _with_views(text: str, streams: Sequence[Stream]) -> str:
    """Replace each STREAM by its view; add the table's name as alias if there is none."""
    for stream in reversed(streams):
        use = stream.use
        name = quoted_name(stream.view.view)
        if use.alias is None:
            name = f"{name} AS {quoted_name(stream.record.name.rpartition('.')[2])}"
        text = text[: use.start] + name + text[use.end :]
    return text


def require_no_cycle(
    target: TableRecord, streams: Sequence[Stream], *, jobs: Sequence[JobState]
) -> None:
    """Raise UserError if an input of a flow is computed from the flow's target table."""
    inputs_by_table: dict[str, set[str]] = {}
    for state in jobs:
        inputs = {split.identity for split in state.progress}
        inputs_by_table.setdefault(state.definition.table.id, set()).update(inputs)
    for stream in streams:
        seen: set[str] = set()
        waiting = [stream.record.id]
        while waiting:
            table = waiting.pop()
            if table == target.id:
                raise UserError(
                    f'table "{target.name}" cannot be computed from itself: table '
                    f'"{stream.record.name}" reads it',
                    code=Code.NOT_SUPPORTED_ERR,
                    hint="Remove the cycle.",
                )
            if table not in seen:
                seen.add(table)
                waiting += inputs_by_table.get(table, ())


def stream_source(defined: DefinedQuery, options: StreamOptions) -> SourceRef:
    """Return the source of a query: its streams and their options."""
    from penstock.sources.table_log.kind import TableStream, streams_text

    log = source_kind(_SOURCE)
    view_by_split = {view.split: view for view in defined.query.views}
    streams = [
        TableStream(
            split=stream.view.split,
            table=stream.record.name,
            id=stream.record.id,
            location=stream.record.location,
            columns=_used_columns(view_by_split[stream.view.split]),
            event_time=stream.view.event_time,
        )
        for stream in defined.streams
    ]
    pairs = {**options.source, **options.start, "streams": streams_text(streams)}
    return source_ref(log, parse_options(log.options, pairs.items(), what="STREAM"))


def stream_definition(
    statement: CreateStreamingTable | CreateFlow,
    query: StreamingQuery,
    *,
    properties: StreamingTableProperties,
    source: SourceRef,
    table: TableRef,
    columns: tuple[Column, ...],
) -> JobDefinition:
    """Return the definition of a streaming table or flow."""
    log = source_kind(source.kind)
    return JobDefinition(
        name=statement.name,
        comment=statement.comment,
        revision=1,
        job_kind=statement.kind.name,
        table=table,
        columns=None,
        select=statement.query.text,
        select_source_start=0,
        select_source_end=0,
        function=log.functions[0],
        source=source,
        source_columns=(),
        targets=stream_targets(query, columns),
        properties=properties,
        needs=log.needs,
        place_columns=log.place_columns,
        streaming=query,
    )


def _used_columns(view: StreamView) -> tuple[Column, ...]:
    used = {*view.needed, view.event_time}
    return tuple(column for column in view.columns if column.name in used)


def stream_targets(
    query: StreamingQuery, columns: Sequence[Column]
) -> tuple[TargetColumn, ...]:
    """Assign the outputs of the query to the columns of the table, by name."""
    path_by_name = {
        output.name.lower(): (output_name(at),) for at, output in enumerate(query.outputs)
    }
    return tuple(
        TargetColumn(name=column.name, path=path_by_name.get(column.name.lower()))
        for column in columns
    )


def start_positions(
    source: SourceRef, *, options: StreamOptions, services: Services
) -> Progress:
    """Return the start positions of the streams."""
    request = StartRequest(
        options=source_options(source),
        values=None,
        given=options.start,
        properties=options.properties,
        clock=services.clock,
        reveal=lambda _, text: text,
        tables=cast("TableOpener", services.tables),
    )
    return source_kind(source.kind).start(request) or ()
