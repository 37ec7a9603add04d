"""From the statements of a routine load to its definition, checked against the real stream."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.catalog.tables import TableRecord
from penstock.clock import Clock
from penstock.control.clauses import FUNCTION, insert_of_load, source_columns
from penstock.control.define import (
    Defined,
    DefinitionParts,
    JobSecret,
    define_insert,
    require_time_zone,
    without_literals,
)
from penstock.errors import Code, UserError
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobDefinition, JobState, LoadProperties, TableRef
from penstock.model.job_kinds import FIXED_OPTIONS, RoutineProperties
from penstock.model.options import parse_options, print_options
from penstock.model.schema import Column
from penstock.model.split import SplitProgress, same_shard
from penstock.sources.formats.payloads import Decoder
from penstock.sources.kinesis.access import revealed_stream
from penstock.sources.kinesis.options import STREAM_COLUMNS, KinesisOptions
from penstock.sources.kinesis.start import (
    POSITION_KEYS,
    POSITIONS,
    Beginning,
    Start,
    read_start,
)
from penstock.sql.statements import AlterRoutineLoad, CreateRoutineLoad, Properties

WHAT_PROPERTIES = "a routine load"
# Doris' other name of an option.
_ALIASES = {"kinesis_endpoint": "aws.endpoint"}

Progress = tuple[SplitProgress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedLoad:
    """A routine load as it would be, and where its shards stand; None where they were."""

    defined: Defined
    progress: Progress | None


def define_load(
    statement: CreateRoutineLoad,
    *,
    table: TableRecord,
    columns: tuple[Column, ...],
    parts: DefinitionParts,
    clock: Clock,
) -> DefinedLoad:
    """Answer the definition, checked against the real table and the real stream."""
    _require_kinesis(statement.source)
    properties = _properties(statement.properties)
    options, start_options = _sorted_options(statement.options)
    given = parse_options(KinesisOptions, options.items(), what=FUNCTION, also=POSITION_KEYS)
    values = _values(given, parts=parts)
    source, secret = without_literals(
        given, what=FUNCTION, job=statement.name, job_id=None, vault=parts.vault
    )
    definition = _defined(
        JobDefinition(
            name=statement.name,
            comment=statement.comment,
            revision=1,
            table=TableRef(name=table.name, id=table.id, location=table.location),
            columns=None,
            select="",
            select_source_start=0,
            select_source_end=0,
            function=FUNCTION,
            source=source,
            source_columns=(),
            targets=(),
            properties=properties,
            load=statement.load,
        ),
        columns=columns,
        parts=parts,
    )
    start = _start(start_options, values=values, properties=properties)
    progress = Beginning(values, clock=clock).progress(start)
    return DefinedLoad(
        defined=Defined(definition=definition, floor=None, secret=secret), progress=progress
    )


def alter_load(
    state: JobState,
    statement: AlterRoutineLoad,
    *,
    columns: tuple[Column, ...],
    parts: DefinitionParts,
    clock: Clock,
) -> DefinedLoad:
    """Answer the definition as it would be; what the statement does not say stays."""
    definition = state.definition
    before = definition.stream
    merged = dict(print_options(definition.properties)) | dict(statement.properties)
    properties = _properties(merged.items())
    if properties.format is not definition.routine_properties.format:
        raise UserError(
            'option "format" of a routine load cannot be altered',
            code=Code.OPTION_ERR,
            hint="Stop it, and create another one.",
        )
    options, start_options = _sorted_options(statement.options)
    source, secret = before, None
    if statement.source is not None:
        _require_kinesis(statement.source)
        source, secret = _altered_source(
            before, options, name=definition.name, job_id=state.id, parts=parts
        )
    altered = _defined(
        replace(
            definition,
            properties=properties,
            source=source,
            load=_merged(definition.load or LoadProperties(), statement.load),
            revision=definition.revision + 1,
        ),
        columns=columns,
        parts=parts,
    )
    values = _revealed(source, secret, parts=parts)
    start = _start(start_options, values=values, properties=properties)
    moved = _moved(_values_of_place(before, parts), values, start, state.progress, clock=clock)
    return DefinedLoad(
        defined=Defined(definition=altered, floor=None, secret=secret), progress=moved
    )


def _altered_source(
    before: KinesisOptions,
    options: Mapping[str, str],
    *,
    name: str,
    job_id: str,
    parts: DefinitionParts,
) -> tuple[KinesisOptions, JobSecret | None]:
    given = dict(print_options(before)) | dict(options)
    if _is_another(before, options) and "kinesis_shards" not in options:
        # Shards of the old stream mean nothing in the new one.
        given.pop("kinesis_shards", None)
    parsed = parse_options(KinesisOptions, given.items(), what=FUNCTION, also=POSITION_KEYS)
    return without_literals(parsed, what=FUNCTION, job=name, job_id=job_id, vault=parts.vault)


def _is_another(before: KinesisOptions, options: Mapping[str, str]) -> bool:
    stream = options.get("kinesis_stream", before.stream)
    region = options.get("aws.region", before.region)
    return (stream, region) != (before.stream, before.region)


def _values_of_place(before: KinesisOptions, parts: DefinitionParts) -> KinesisOptions:
    """Answer which stream and shards were read; keys may be what the statement repairs."""

    def value(key: str, text: str) -> str:
        return parts.vault.reveal(text, option=key)

    return replace(
        before,
        stream=value("kinesis_stream", before.stream),
        region=value("aws.region", before.region),
        shards=value("kinesis_shards", before.shards),
    )


def _moved(
    before: KinesisOptions,
    values: KinesisOptions,
    start: Start | None,
    progress: Progress,
    *,
    clock: Clock,
) -> Progress | None:
    """Answer where the shards stand behind the statement; None if where they stood."""
    beginning = Beginning(values, clock=clock)
    if (values.stream, values.region) != (before.stream, before.region):
        return beginning.progress(start)
    if start is None:
        if values.pinned == before.pinned:
            return None
        _require_tracked(values, progress)
        start = Start(key=POSITIONS, stored={})
    if start.stored is not None:
        # What is not named stays where it is; of pinned shards no others are followed.
        start = replace(start, kept=_kept(values, progress))
    known = {split.split: split for split in progress}
    return tuple(
        replace(one, records=known[one.split].records)
        if one.split in known and same_shard(known[one.split], one)
        else one
        for one in beginning.progress(start)
    )


def _kept(values: KinesisOptions, progress: Progress) -> Progress:
    pinned = values.pinned
    return tuple(split for split in progress if not pinned or split.split in pinned)


def _require_tracked(source: KinesisOptions, progress: Progress) -> None:
    """Require that the statement need not say where the reading of pinned shards begins."""
    known = {split.split for split in progress}
    for name in source.pinned:
        if name not in known:
            raise UserError(
                f'option "kinesis_shards" names shard "{name}", which this routine load does '
                "not read",
                code=Code.META_NOT_FOUND_ERR,
                hint=(
                    f"It reads {', '.join(sorted(known)[:3])}; see SHOW SHARDS. For others say "
                    'with "kinesis_shards_pos" where reading begins.'
                ),
            )


def _revealed(
    source: KinesisOptions, secret: JobSecret | None, *, parts: DefinitionParts
) -> KinesisOptions:
    """Answer the options with values; those of a secret that is not stored yet included."""
    own = dict(secret.values) if secret else {}
    return revealed_stream(
        source,
        lambda key, text: own[key] if key in own else parts.vault.reveal(text, option=key),
    )


def _values(given: KinesisOptions, *, parts: DefinitionParts) -> KinesisOptions:
    return revealed_stream(given, lambda key, text: parts.vault.reveal(text, option=key))


def _merged(before: LoadProperties, given: LoadProperties) -> LoadProperties:
    return LoadProperties(
        separator=before.separator if given.separator is None else given.separator,
        columns=before.columns if given.columns is None else given.columns,
        preceding_filter=given.preceding_filter or before.preceding_filter,
        where=given.where or before.where,
    )


def _defined(
    definition: JobDefinition, *, columns: tuple[Column, ...], parts: DefinitionParts
) -> JobDefinition:
    """Complete a definition with what follows from its clauses and the table."""
    load = definition.load or LoadProperties()
    properties = definition.routine_properties
    own = source_columns(load, format_=properties.format, columns=columns)
    _check_payload(definition, own)
    insert = insert_of_load(
        load, table=definition.table.name, columns=columns, source=own, beside=STREAM_COLUMNS
    )
    query, targets = define_insert(
        insert,
        source_columns=own,
        columns=columns,
        properties=properties,
        parts=parts,
        beside=STREAM_COLUMNS,
    )
    return replace(
        definition,
        columns=insert.columns,
        select=insert.select,
        select_source_start=insert.source.start,
        select_source_end=insert.source.end,
        source_columns=own,
        targets=targets,
        query=query,
    )


def _check_payload(definition: JobDefinition, columns: tuple[Column, ...]) -> None:
    """Refuse options that mean nothing in the format, or contradict each other."""
    properties = definition.routine_properties
    load = definition.load or LoadProperties()
    given = [key for key, _ in print_options(properties)]
    for format_, keys in _KEYS.items():
        for key in keys:
            if key in given and properties.format is not format_:
                raise _meaningless(key, properties.format)
    if load.separator is not None and properties.format is not PayloadFormat.CSV:
        raise _meaningless("COLUMNS TERMINATED BY", properties.format)
    Decoder(properties.payload(load.separator), columns=columns, needed=())


_KEYS = {
    PayloadFormat.CSV: ("enclose", "escape", "trim_double_quotes", "empty_field_as_null"),
    PayloadFormat.JSON: ("strip_outer_array", "json_root", "jsonpaths", "num_as_string"),
}


def _meaningless(what: str, format_: PayloadFormat) -> UserError:
    told = what if what.isupper() else f'option "{what}"'
    return UserError(
        f"{told} has no meaning for the format {format_}",
        code=Code.OPTION_ERR,
        hint="""The format is csv unless PROPERTIES("format" = "json") says otherwise.""",
    )


def _properties(pairs: Iterable[tuple[str, str]]) -> RoutineProperties:
    given = dict(pairs)
    for key, default in FIXED_OPTIONS.items():
        text = given.pop(key, default)
        if text.strip().lower() != default:
            raise UserError(
                f'option "{key}" of Doris must be {default or "empty"} here, not "{text}"',
                code=Code.NOT_SUPPORTED_ERR,
                detail="It is known, but not supported.",
                hint="Leave it out.",
            )
    properties = parse_options(RoutineProperties, given.items(), what=WHAT_PROPERTIES)
    require_time_zone(properties.time_zone, key="timezone")
    return properties


def _sorted_options(pairs: Properties) -> tuple[dict[str, str], dict[str, str]]:
    """Answer the options that stay, and those that say where to begin."""
    given: dict[str, str] = {}
    for written, value in pairs:
        key = _ALIASES.get(written, written)
        if key in given:
            raise UserError(
                f'options "{key}" and "{written}" are the same', code=Code.OPTION_ERR
            )
        given[key] = value
    start = {key: given.pop(key) for key in POSITION_KEYS if key in given}
    return given, start


def _start(
    start_options: Mapping[str, str], *, values: KinesisOptions, properties: RoutineProperties
) -> Start | None:
    return read_start(start_options, shards=values.pinned, zone=properties.time_zone)


def _require_kinesis(source: str) -> None:
    if source != FUNCTION:
        raise UserError(
            f"FROM {source} is not supported yet",
            code=Code.NOT_SUPPORTED_ERR,
            hint="Write FROM KINESIS(…).",
        )
