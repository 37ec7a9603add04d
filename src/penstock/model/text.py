"""Format numbers, durations, instants and names for users and for SQL."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_THOUSAND = 1000
_UNITS = ("kB", "MB", "GB", "TB")
# The watermark that closes all state, in milliseconds since 1970. No row has such a late event
# time.
FINAL_WATERMARK_MS = 36_500_000 * 86_400_000


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: 1 file, 2 files."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_duration(duration: timedelta, *, tenths: bool = False) -> str:
    """Format a duration in its two largest units: 7 s, 3 min 20 s, 2 h 5 min, 4 d 1 h."""
    seconds = max(duration.total_seconds(), 0.0)
    if tenths and seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def format_size(size_bytes: int) -> str:
    """Format a size in the largest unit that it fills: 17 bytes, 1.2 MB."""
    if size_bytes < _THOUSAND:
        return format_count(size_bytes, "byte")
    power = min((len(str(size_bytes)) - 1) // 3, len(_UNITS))
    return f"{size_bytes / _THOUSAND**power:,.1f} {_UNITS[power - 1]}"


def format_instant(at: datetime | None) -> str | None:
    """Format an instant in UTC, to the second; return None for None."""
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_event_time(since_1970_ms: int) -> str:
    """Format an event time in UTC, to the millisecond; return FINAL for the final watermark."""
    if since_1970_ms >= FINAL_WATERMARK_MS:
        return "FINAL"
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=since_1970_ms)
    except OverflowError:
        return f"{since_1970_ms} ms"
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{since_1970_ms % 1000:03d}" if since_1970_ms % 1000 else text


def format_names(names: Sequence[str], *, shown_max: int = 3) -> str:
    """Format the first names, and the number of further names."""
    more = len(names) - shown_max
    return ", ".join(names[:shown_max]) + (f" and {more} more" if more > 0 else "")


def quoted_name(name: str) -> str:
    """Quote a name, if necessary, so that the parser reads the same name."""
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """Quote a text as a string literal; single quotes are doubled, backslashes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
