"""How much an epoch reads, and how soon the next poll or attempt follows."""

from datetime import timedelta

from penstock.model.epoch import EpochLimits
from penstock.model.job import JobDefinition

ATTEMPTS_MAX = 4
_RETRY_DELAY_FIRST = timedelta(milliseconds=200)


def epoch_limits(definition: JobDefinition) -> EpochLimits:
    """Return the limits of the next epoch."""
    return definition.properties.limits


def poll_interval(definition: JobDefinition) -> timedelta:
    """Return how often an idle source is polled."""
    return definition.properties.max_interval


def retry_delay(attempt: int) -> timedelta:
    """Return how long to wait before the given attempt of an epoch, counted from 1."""
    doublings: int = 2 ** (attempt - 1)
    return _RETRY_DELAY_FIRST * doublings
