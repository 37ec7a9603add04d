"""Which crash points the tests of this folder pass, and who passes them."""

from penstock.crashpoints import CrashPoint

EPOCH_POINTS = (
    CrashPoint.EPOCH_STARTED,
    CrashPoint.RUN_FINISHED,
    CrashPoint.COMMIT_CHECKED,
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.CATALOG_APPLIED,
    CrashPoint.COPY_WRITTEN,
)

# The commit that the catalog has not seen is applied first, the fence second.
RECOVERY_POINTS = (
    (CrashPoint.LEASE_TAKEN, 1),
    (CrashPoint.CHAIN_EXTENDED, 1),
    (CrashPoint.RECOVERY_FENCED, 1),
    (CrashPoint.RECOVERY_APPLIED, 1),
    (CrashPoint.RECOVERY_APPLIED, 2),
    (CrashPoint.ATTEMPTS_CANCELLED, 1),
)
