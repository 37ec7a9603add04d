"""Options of the cadence of a job: intervals, lag marks and limits, also during backlog."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from penstock.errors import UserError
from penstock.model.backlog import LagMarks, LagUnit
from penstock.model.options import (
    Spelled,
    merge_options,
    option,
    parse_duration,
    parse_size,
    print_size,
)

INTERVAL_KEY = "checkpoint.interval"
BACKLOG_INTERVAL_KEY = f"{INTERVAL_KEY}-during-backlog"
LAG_HIGH_KEY, LAG_LOW_KEY = "backlog.lag-high", "backlog.lag-low"
FRESHNESS_KEY = "freshness"
# With this value of freshness, the target is the smallest target of the readers.
DOWNSTREAM = "downstream"
_FRESHNESS_MIN = timedelta(seconds=1)
# The keys of the interval option, each with the unit of a bare number.
_SPELLINGS = {"max_interval": "", "max_batch_interval": "", INTERVAL_KEY: "milliseconds"}
_ROWS = re.compile(r"\s*(\d{1,18})\s*rows?\s*\Z", re.IGNORECASE)
_BYTES = re.compile(r"\s*[\d.]+\s*([kmgt]i?b|b|bytes?)\s*\Z", re.IGNORECASE)
_BATCH_SUFFIX = "-during-backlog"

# Maps an option key to the normal limit, and to the limit during backlog if one is set.
BatchLimits = Mapping[str, tuple[int, int | None]]


def interval_aliases(key: str) -> dict[str, str]:
    """Return the other spellings of the interval option."""
    return {spelling: unit for spelling, unit in _SPELLINGS.items() if spelling != key}


def backlog_limit(key: str, *, unit: str = "") -> Any:  # noqa: ANN401 - As option().
    """Declare the value of a batch limit during backlog."""
    return option(
        f"Value of {key} while the job is in backlog; at least the normal value.",
        key=key + _BATCH_SUFFIX,
        default=None,
        at_least=1,
        unit=unit,
        none_word="same",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CadenceOptions:
    """Options that control how often every kind of job commits."""

    interval_backlog: timedelta | None = option(
        "Value of checkpoint.interval while the job is in backlog. 0: commit only when a batch "
        "limit is full or the backlog ends. A bare number is in milliseconds.",
        key=BACKLOG_INTERVAL_KEY,
        default=None,
        at_least=timedelta(0),
        unit="milliseconds",
        none_word="same",
    )
    lag_high: str = option(
        "Lag above which the job enters backlog, such as 100000 rows, 64 MB or 5 min.",
        key=LAG_HIGH_KEY,
        default="",
    )
    lag_low: str = option(
        "A job that entered backlog by backlog.lag-high leaves it below this lag.",
        key=LAG_LOW_KEY,
        default="",
    )
    freshness: str = option(
        "Target for the age of a row when it becomes visible, such as 30 s; replaces the "
        "interval. downstream: the smallest target of the streaming tables that read the "
        "table.",
        key=FRESHNESS_KEY,
        default="",
    )

    @property
    def marks(self) -> LagMarks | None:
        """The marks of the lag rule; None if the options are not set."""
        if not self.lag_high:
            return None
        unit, high = parse_lag(self.lag_high, key=LAG_HIGH_KEY)
        _, low = parse_lag(self.lag_low, key=LAG_LOW_KEY)
        return LagMarks(unit=unit, high=high, low=low)

    @property
    def target(self) -> timedelta | None:
        """The target lag; None if it is not set or follows from the readers."""
        if self.freshness in ("", DOWNSTREAM):
            return None
        return parse_duration(self.freshness, what=f'option "{FRESHNESS_KEY}"')


def parse_lag(text: str, *, key: str) -> tuple[LagUnit, float]:
    """Read an amount of lag: rows, bytes or a duration, with its unit."""
    what = f'option "{key}"'
    if rows := _ROWS.match(text):
        return LagUnit.ROWS, float(rows[1])
    if _BYTES.match(text):
        digits = re.sub(r"bytes?", "b", text, flags=re.IGNORECASE)
        return LagUnit.BYTES, float(parse_size(digits, what=what, shown=f'"{text}"'))
    if text.strip().replace(".", "", 1).isdigit():
        raise UserError(
            f'{what} must have a unit, not "{text}"',
            hint="Write for example 100000 rows, 64 MB or 5 min.",
        )
    return LagUnit.TIME, parse_duration(text, what=what).total_seconds()


class HasCadence(Protocol):
    """The properties of any kind of job."""

    @property
    def cadence(self) -> CadenceOptions:
        """The options that control how often the job commits."""
        ...

    @property
    def spelled(self) -> Spelled:
        """The key with which the user set the interval; empty if the user did not set it."""
        ...

    @property
    def interval(self) -> timedelta:
        """Longest time between two commits."""
        ...

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits that can have another value during backlog."""
        ...


def require_cadence(properties: HasCadence, *, measures: Collection[str]) -> None:
    """Raise UserError for options that exclude each other, or that the source does not support.

    ``measures`` are the units in which the source measures unread data.
    """
    _require_intervals(properties)
    _require_marks(properties.cadence, measures)
    for key, (normal, backlog) in properties.batch_limits.items():
        if backlog is not None and backlog < normal:
            shown = print_size if "rows" not in key and "files" not in key else str
            raise UserError(
                f'option "{key}{_BATCH_SUFFIX}" must be at least "{key}", which is '
                f"{shown(normal)}, not {shown(backlog)}",
            )


def _require_intervals(properties: HasCadence) -> None:
    cadence = properties.cadence
    normal, longer = cadence.target or properties.interval, cadence.interval_backlog
    if longer is not None and timedelta(0) < longer < normal:
        raise UserError(
            f'option "{BACKLOG_INTERVAL_KEY}" must be 0, or at least the normal interval of '
            f"{_seconds(normal)}, not {_seconds(longer)}",
            hint="A job in backlog commits less often, never more often.",
        )
    if not cadence.freshness:
        return
    if properties.spelled:
        raise UserError(
            f'option "{FRESHNESS_KEY}" cannot be combined with "{properties.spelled[0][1]}"',
            hint=f'Set "{FRESHNESS_KEY}" or an interval, not both.',
        )
    target = cadence.target
    if target is not None and target < _FRESHNESS_MIN:
        raise UserError(
            f'option "{FRESHNESS_KEY}" must be at least {_seconds(_FRESHNESS_MIN)}, not '
            f'"{cadence.freshness}"',
        )


def _require_marks(cadence: CadenceOptions, measures: Collection[str]) -> None:
    given = {LAG_HIGH_KEY: cadence.lag_high, LAG_LOW_KEY: cadence.lag_low}
    missing = [key for key, text in given.items() if not text]
    if len(missing) == len(given):
        return
    if missing:
        (other,) = given.keys() - set(missing)
        raise UserError(f'option "{other}" requires "{missing[0]}"')
    units = {key: parse_lag(text, key=key) for key, text in given.items()}
    (high_unit, high), (low_unit, low) = units[LAG_HIGH_KEY], units[LAG_LOW_KEY]
    if high_unit is not low_unit:
        raise UserError(
            f'options "{LAG_HIGH_KEY}" and "{LAG_LOW_KEY}" must have the same unit, not '
            f"{high_unit} and {low_unit}"
        )
    if low >= high:
        raise UserError(
            f'option "{LAG_LOW_KEY}" must be below "{LAG_HIGH_KEY}", not '
            f'"{cadence.lag_low}" and "{cadence.lag_high}"'
        )
    if not low:
        raise UserError(
            f'option "{LAG_LOW_KEY}" must be more than 0, not "{cadence.lag_low}"',
            hint="A lag is never below 0, so the job would never leave its backlog.",
        )
    if high_unit not in measures:
        allowed = [unit for unit in LagUnit if unit in measures]
        raise UserError(
            f'option "{LAG_HIGH_KEY}" cannot be in {high_unit}, because the source measures '
            f"its lag in {', '.join(allowed)}",
        )


def merge_properties(before: HasCadence, given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return properties as text, after the given changes.

    A given freshness target replaces the interval. A given interval replaces the target.
    """
    merged, keys = merge_options(before, given), {key for key, _ in given}
    replaced = {FRESHNESS_KEY} if keys & _SPELLINGS.keys() else set()
    if dict(given).get(FRESHNESS_KEY):
        replaced = {*_SPELLINGS}
    return {key: text for key, text in merged.items() if key in keys or key not in replaced}


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"
