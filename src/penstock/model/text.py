"""Numbers with their nouns, for people."""

from datetime import timedelta

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_THOUSAND = 1000
_UNITS = ("kB", "MB", "GB", "TB")


def counted(number: int, noun: str) -> str:
    """Write a count with its noun: 1 file, 2 files."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def lasted(duration: timedelta, *, tenths: bool = False) -> str:
    """Write a duration in its two largest units: 7 s, 3 min 20 s, 2 h 5 min, 4 d 1 h."""
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


def sized(size_bytes: int) -> str:
    """Write a size in the largest unit that it fills: 17 bytes, 1.2 MB."""
    if size_bytes < _THOUSAND:
        return counted(size_bytes, "byte")
    power = min((len(str(size_bytes)) - 1) // 3, len(_UNITS))
    return f"{size_bytes / _THOUSAND**power:,.1f} {_UNITS[power - 1]}"
