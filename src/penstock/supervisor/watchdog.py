"""Which work takes too long to be waited for."""

from datetime import datetime

from penstock.engine.progress import Progress, Step
from penstock.model.job import JobState
from penstock.model.routine_properties import RoutineProperties


def overdue(state: JobState, progress: Progress, *, now: datetime) -> bool:
    """Tell whether the tasks of a routine load should have ended.

    An epoch of files may be as large as the files are; one of a stream has a time to read.
    """
    properties = state.definition.properties
    if progress.step is not Step.LOADING or not isinstance(properties, RoutineProperties):
        return False
    return now - progress.since > properties.task_timeout
