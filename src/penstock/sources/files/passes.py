"""Which part of the keys a look covers.

A pass goes over the keys once, from the floor on (an audit) or only behind what was loaded. It
takes several looks when more is new than memory should hold. A look is repeated from where it
began until everything that was planned from it has been committed: only then is it sure that
nothing was left behind.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look of a pass: it begins behind a key and ends with the last new file it kept."""

    audit: bool
    begin: str = ""
    end: str = ""
    complete: bool = False


def next_look(last: Look | None, *, settled: bool, audit_due: bool) -> Look:
    """Answer the look that follows; ``settled`` tells that all of the last one is loaded."""
    if last is None:
        return Look(audit=True)
    if not settled:
        return Look(audit=last.audit, begin=last.begin)
    if not last.complete:
        return Look(audit=last.audit, begin=last.end)
    return Look(audit=audit_due)
