"""Options of a routine load, given in PROPERTIES; Doris' names and defaults."""

from dataclasses import dataclass
from datetime import timedelta

from penstock.model.epoch import EpochLimits
from penstock.model.formats import Payload, PayloadCompression, PayloadFormat
from penstock.model.options import option

POLL_INTERVAL_MAX = timedelta(seconds=10)
# Options of Doris that mean nothing here; their defaults are taken for what they are.
FIXED_OPTIONS = {
    "exec_mem_limit": "2147483648",
    "send_batch_parallelism": "1",
    "load_to_single_tablet": "false",
    "partial_columns": "false",
    "unique_key_update_mode": "upsert",
    "partial_update_new_key_behavior": "append",
    "fuzzy_parse": "false",
    "workload_group": "",
}
_TIMEOUT_BATCHES = 10
_TIMEOUT_MIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineProperties:
    """How a routine load reads, and how many bad rows it bears."""

    tasks_max: int = option(
        "Most tasks of an epoch; never more than there are shards.",
        key="desired_concurrent_number",
        default=256,
        at_least=1,
    )
    max_error_number: int = option(
        "Most rejected rows in a window of ten times max_batch_rows; one more pauses the job.",
        default=0,
        at_least=0,
    )
    max_filter_ratio: float = option(
        "Largest share of rejected rows in that window; more of them pause the job.",
        default=1.0,
        at_least=0.0,
        at_most=1.0,
    )
    max_batch_interval: timedelta = option(
        "Longest time that an epoch reads; also how often an idle source is asked, though at "
        "least every 10 seconds.",
        default=timedelta(seconds=60),
        at_least=timedelta(seconds=1),
    )
    max_batch_rows: int = option(
        "Records after which an epoch ends; the record that crosses is included.",
        default=20_000_000,
        at_least=1,
    )
    max_batch_size: int = option(
        "Bytes after which an epoch ends; the record that crosses is included.",
        default=2**30,
        at_least=1,
        at_most=10 * 2**30,
        unit="bytes",
    )
    strict_mode: bool = option(
        "Kept and shown, without an effect: in either mode an expression that fails is NULL, "
        "and a row that does not fit the table is rejected.",
        default=False,
    )
    time_zone: str = option(
        "The time zone of start positions, and in which expressions see local times.",
        key="timezone",
        default="UTC",
    )
    format: PayloadFormat = option("Format of the records.", default=PayloadFormat.CSV)
    compress_type: PayloadCompression = option(
        "How every record is compressed.", default=PayloadCompression.NONE
    )
    enclose: str = option(
        "CSV: the character around a field that may hold separators and line ends.", default=""
    )
    escape: str = option(
        "CSV: the character that takes the meaning from the one behind it, in enclosed fields.",
        default="",
    )
    trim_double_quotes: bool = option(
        "CSV: whether double quotes around a field are taken away.", default=False
    )
    empty_field_as_null: bool = option(
        "CSV: whether an empty field is NULL instead of an empty text.", default=False
    )
    strip_outer_array: bool = option(
        "JSON: whether a record is one array, and every element of it a row.", default=False
    )
    json_root: str = option(
        "JSON: path of the part of a document that is the row, such as $.data.", default=""
    )
    jsonpaths: str = option(
        'JSON: paths of the columns, in their order: ["$.id", "$.customer.city"].', default=""
    )
    num_as_string: bool = option(
        "JSON: whether numbers are read as the text they are written with.", default=False
    )
    python_udfs: str = option(
        "A Python module whose functions made with pyspark's udf() expressions may call.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Most bytes of a table that expressions look at.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    @property
    def max_interval(self) -> timedelta:
        """Longest wait before an idle source is asked again."""
        return min(self.max_batch_interval, POLL_INTERVAL_MAX)

    @property
    def task_timeout(self) -> timedelta:
        """How long the tasks of an epoch may take before it is begun anew."""
        return max(self.max_batch_interval * _TIMEOUT_BATCHES, _TIMEOUT_MIN)

    @property
    def strict(self) -> bool:
        """Whether rows and expressions that fail do so to their epoch: the window decides."""
        return False

    @property
    def limits(self) -> EpochLimits:
        """How much an epoch takes at most."""
        return EpochLimits(
            records=self.max_batch_rows,
            size_bytes=self.max_batch_size,
            duration=self.max_batch_interval,
        )

    @property
    def filter_ratio_max(self) -> float:
        """The share of rejected rows with which an epoch is committed: any."""
        return 1.0

    def payload(self, separator: str | None) -> Payload:
        """Answer how the bytes of a record become rows."""
        given = {} if separator is None else {"column_separator": separator}
        return Payload(
            format=self.format,
            enclose=self.enclose,
            escape=self.escape,
            trim_double_quotes=self.trim_double_quotes,
            empty_field_as_null=self.empty_field_as_null,
            strip_outer_array=self.strip_outer_array,
            json_root=self.json_root,
            jsonpaths=self.jsonpaths,
            num_as_string=self.num_as_string,
            compress_type=self.compress_type,
            **given,
        )
