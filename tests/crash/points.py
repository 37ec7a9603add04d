"""The crash points that the tests of this folder use, by statement or step."""

from penstock.crashpoints import CrashPoint

EPOCH_POINTS = (
    CrashPoint.EPOCH_STARTED,
    CrashPoint.RUN_FINISHED,
    CrashPoint.COMMIT_CHECKED,
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.CATALOG_APPLIED,
    CrashPoint.COPY_WRITTEN,
)

REJECT_POINTS = (
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.COPY_WRITTEN,
    CrashPoint.REJECTS_COMMITTED,
)

# Recovery first applies the commit that the catalog lacks, then the fence.
RECOVERY_POINTS = (
    (CrashPoint.LEASE_TAKEN, 1),
    (CrashPoint.CHAIN_EXTENDED, 1),
    (CrashPoint.RECOVERY_FENCED, 1),
    (CrashPoint.RECOVERY_APPLIED, 1),
    (CrashPoint.RECOVERY_APPLIED, 2),
    (CrashPoint.ATTEMPTS_CANCELLED, 1),
)

# Between the boundaries of a backlog and the first plan.
BACKLOG_POINTS = (CrashPoint.BACKLOG_STORED,)

FAILURE_POINTS = (CrashPoint.ATTEMPT_ENDED, CrashPoint.PAUSE_STORED)

TASK_POINTS = (CrashPoint.TASK_WRITTEN,)

FENCE_POINTS = (
    CrashPoint.DESIRED_STATE_STORED,
    CrashPoint.CHAIN_EXTENDED,
    CrashPoint.STATEMENT_COMMITTED,
    CrashPoint.STATEMENT_APPLIED,
)

RESUME_POINTS = (CrashPoint.DESIRED_STATE_STORED,)

DROP_POINTS = (
    CrashPoint.DESIRED_STATE_STORED,
    CrashPoint.CHAIN_EXTENDED,
    CrashPoint.STATEMENT_COMMITTED,
    CrashPoint.CLOSING_COMMITTED,
)

CREATE_POINTS = (CrashPoint.CHAIN_EXTENDED, CrashPoint.OPENING_COMMITTED)

CREATE_TABLE_POINTS = (CrashPoint.TABLE_CREATED,)

DROP_TABLE_POINTS = (CrashPoint.TABLE_FORGOTTEN,)

# The points that only the query of a streaming table reaches.
QUERY_POINTS = (
    CrashPoint.BATCH_OPENED,
    CrashPoint.PLAN_WRITTEN,
    CrashPoint.TASK_READ,
    CrashPoint.BATCH_COLLECTED,
    CrashPoint.BATCH_SETTLED,
    CrashPoint.COMMIT_RECORDED,
    CrashPoint.BATCH_RETURNED,
    CrashPoint.BATCH_REPLAYED,
)

ALL_POINTS = frozenset(
    {
        *EPOCH_POINTS,
        *REJECT_POINTS,
        *(point for point, _ in RECOVERY_POINTS),
        *FAILURE_POINTS,
        *TASK_POINTS,
        *FENCE_POINTS,
        *RESUME_POINTS,
        *DROP_POINTS,
        *CREATE_POINTS,
        *CREATE_TABLE_POINTS,
        *DROP_TABLE_POINTS,
        *QUERY_POINTS,
        *BACKLOG_POINTS,
    }
)
