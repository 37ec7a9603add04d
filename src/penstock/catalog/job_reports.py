"""What one job hears about its stream, as its source keeps it."""

from dataclasses import dataclass

from penstock.catalog.catalog import Catalog
from penstock.model.epoch import Generation
from penstock.model.split import StreamReport


@dataclass(frozen=True, slots=True)
class JobReports:
    """The newest report of one job."""

    catalog: Catalog
    job_id: str
    generation: Generation

    def load(self) -> StreamReport:
        """Answer the newest report."""
        return self.catalog.report(self.job_id)

    def store(self, report: StreamReport) -> None:
        """Replace the report, unless the job has another owner or was changed since."""
        self.catalog.set_report(self.job_id, report, expected=self.generation)
