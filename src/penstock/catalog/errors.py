"""What the catalog refuses besides what a person asked for."""

from penstock.errors import Code, LeaseLostError, PenstockError


class GenerationChangedError(LeaseLostError):
    """Someone raised the job's generation since it was read; nothing was stored."""


class JobGoneError(LeaseLostError):
    """The job was dropped; nothing was stored."""


class LeaseHeldError(LeaseLostError):
    """Another node holds a live lease of the job."""


class CommitGapError(PenstockError):
    """An attachment does not follow the newest one; those between must be applied first."""

    code_default = Code.CATALOG_BEHIND_ERR
