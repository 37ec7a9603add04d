"""Where what was last heard about the shards of a job is kept."""

from typing import Protocol

from penstock.model.shards import StreamReport


class Reports(Protocol):
    """The newest report about the stream of one job."""

    def load(self) -> StreamReport:
        """Answer the newest report; an empty one if there is none."""
        ...

    def store(self, report: StreamReport) -> None:
        """Replace the report."""
        ...
