"""The status that a running job reports, as data; English is produced where it is shown."""

from dataclasses import dataclass
from enum import StrEnum


class StatusCode(StrEnum):
    """What a job does, or why it does not run."""

    # until: when the source is polled next.
    IDLE = "IDLE"
    # node, capability: this node cannot run the job.
    LACKS_CAPABILITY = "LACKS_CAPABILITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A code and its fields."""

    code: StatusCode
    fields: tuple[tuple[str, str], ...] = ()
