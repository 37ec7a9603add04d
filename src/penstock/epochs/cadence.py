"""Limits of an epoch, and the delays before the next poll or attempt."""

from datetime import timedelta

from penstock.model.epoch import EpochLimits
from penstock.model.job import JobDefinition

ATTEMPTS_MAX = 4
_RETRY_DELAY_FIRST = timedelta(milliseconds=200)


def epoch_limits(definition: JobDefinition) -> EpochLimits:
    """Return the limits of the next epoch."""
    return definition.properties.limits


def poll_interval(definition: JobDefinition) -> timedelta:
    """Return the time between two polls of an idle source."""
    return definition.properties.max_interval


def retry_delay(attempt: int) -> timedelta:
    """Return the delay before an attempt of an epoch; attempts are counted from 1."""
    doublings: int = 2 ** (attempt - 1)
    return _RETRY_DELAY_FIRST * doublings
