"""Checks of the home: its folder, settings, catalog, warehouse, secrets and clock."""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog
from penstock.catalog.summary import catalog_path, read_summary, sealing_keys
from penstock.catalog.upgrade import HEAD, RETIRED
from penstock.cli.doctor.report import Finding, Subject, failure, ok, problem, warning
from penstock.epochs.takeover import LEASE_DURATION
from penstock.errors import PenstockError
from penstock.model.secrets import SecretReference, reference_text
from penstock.model.text import format_count, format_duration, format_size
from penstock.settings.settings import FILE_NAME, KEY_FILE

if TYPE_CHECKING:
    from penstock.app import App

FIRST_STATEMENT = "The first SQL statement creates the catalog."
SPACE_MIN_BYTES = 100 * 10**6
SPACE_LOW_BYTES = 10**9
CLOCK_TOLERANCE = timedelta(seconds=2)
# File locks are not reliable on these file systems.
REMOTE = re.compile(r"9p|afs|ceph|cifs|fuse\..*|glusterfs|lustre|nfs4?|smb.*|vboxsf")
IN_MEMORY = frozenset({"ramfs", "tmpfs"})


def check_home(subject: Subject) -> list[Finding]:
    """Check that the folder exists, can be written and locked, and has free space."""
    home = subject.home
    if not home.exists():
        creates = "Run penstock init, or any SQL statement, to create it."
        return [warning("home", f"{home} does not exist", advice=creates)]
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        advice = "Grant this user write access, or set another home: --home or PENSTOCK_HOME."
        return [problem("home", f"{home} cannot be written: {error.strerror}", advice=advice)]
    return [_disk_finding("home", home, nearest=home)]


def _disk_finding(check: str, folder: Path, *, nearest: Path) -> Finding:
    """Return the free space and the file system of a folder as a finding."""
    mounts = Path("/proc/self/mountinfo")
    kind = file_system_of(nearest, mounts.read_text()) if mounts.exists() else ""
    free_bytes = shutil.disk_usage(nearest).free
    found = f"{folder}, {format_size(free_bytes)} free" + (f", {kind}" if kind else "")
    if free_bytes < SPACE_MIN_BYTES:
        return problem(check, found, advice="Free some space.")
    if free_bytes < SPACE_LOW_BYTES:
        return warning(check, found, advice="Free some space soon.")
    if REMOTE.fullmatch(kind) and check == "home":
        advice = "Choose a home on a local disk: file locks fail on network file systems."
        return warning(check, found, advice=advice)
    if kind in IN_MEMORY:
        advice = "Choose a folder on a disk: this one is in memory and is lost at a restart."
        return warning(check, found, advice=advice)
    return ok(check, found)


def file_system_of(folder: Path, mounts: str) -> str:
    """Return the type of a folder's file system; empty if unknown."""
    best = Path(), ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        if folder.is_relative_to(point) and len(point.parts) >= len(best[0].parts):
            best = point, after.split()[0]
    return best[1]


def check_settings(subject: Subject) -> list[Finding]:
    """List the settings that are not defaults, and where each is set."""
    error = subject.settings_error
    if error is not None:
        return [problem("settings", error.message, advice=error.hint)]
    settings = subject.settings
    origin_by_key = settings.origin_by_key
    # Values of Spark properties may be credentials.
    names = ", ".join(sorted(settings.spark_conf))
    shown_by_key = {
        "home": f" = {settings.home}",
        "warehouse": f" = {settings.warehouse_location}",
        "warehouse_secret": f" = {settings.warehouse_secret}",
        "catalog.url": f" = {settings.catalog_url}",
        "spark.master": f" = {settings.spark_master}",
        "spark.conf": f" ({names})",
        "secret_key": "",
    }
    given = [
        f"{key}{shown} from {origin_by_key[key]}"
        for key, shown in shown_by_key.items()
        if key in origin_by_key
    ]
    rest = "defaults for all others" if given else "defaults for all settings"
    return [ok("settings", "; ".join([*given, rest]))]


def check_catalog(subject: Subject) -> list[Finding]:
    """Check that the catalog is intact and current, and count its jobs and tables."""
    url = subject.settings.catalog_url
    path = catalog_path(url)
    if path is None or not path.exists():
        none = "none yet" if path else f"{url} is not a file"
        return [ok("catalog", none, advice=FIRST_STATEMENT)]
    summary = read_summary(path)
    contents = (
        f"{path}: {format_count(summary.jobs, 'job')}, {format_count(summary.tables, 'table')}"
    )
    if summary.damage:
        restore = "Restore the file from a backup."
        return [problem("catalog", f"{path} is damaged: {summary.damage}", advice=restore)]
    if subject.app_error:
        return [problem("catalog", f"{contents}; it cannot be opened: {subject.app_error}")]
    if summary.revision == HEAD:
        return [ok("catalog", f"{contents}, intact, revision {HEAD}")]
    found = f"{contents}; its revision is {summary.revision or 'none'}, "
    if summary.revision is not None and summary.revision > HEAD:
        newer = f"{found}but this Penstock supports {HEAD}"
        return [problem("catalog", newer, advice="Upgrade Penstock.")]
    if summary.revision in RETIRED:
        advice = "Choose another home. To move the data, see docs/guides/operations.md."
        return [problem("catalog", f"{found}which this Penstock cannot read", advice=advice)]
    advice = "Back up the home. The next SQL statement or run upgrades the catalog."
    return [warning("catalog", f"{found}the current one is {HEAD}", advice=advice)]


def check_warehouse(subject: Subject) -> list[Finding]:
    """Check that tables can be created; a bucket is tested with a small object."""
    place = subject.settings.warehouse_location
    if "://" in place and not place.startswith("file://"):
        return [_bucket_finding(subject, place)]
    folder = Path(place.removeprefix("file://"))
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(nearest, os.W_OK | os.X_OK):
        return [_disk_finding("warehouse", folder, nearest=nearest)]
    advice = f"Allow this user to write {nearest}, or set warehouse in {FILE_NAME}."
    return [problem("warehouse", f"{folder} cannot be written", advice=advice)]


def _bucket_finding(subject: Subject, place: str) -> Finding:
    if subject.app is None:
        return ok(
            "warehouse", f"{place}, not checked: there is no catalog", advice=FIRST_STATEMENT
        )
    if not subject.quick:
        return ok("warehouse", subject.app.check_warehouse())
    secret = subject.settings.warehouse_secret
    if secret:
        # check_secrets resolves the references. Here the secret only has to exist.
        subject.app.vault.reveal_all(secret, known=())
    return ok("warehouse", f"{place}, not checked (--quick)")


def check_secrets(subject: Subject) -> list[Finding]:
    """Check that the key decrypts the secrets, and that their references resolve."""
    path = catalog_path(subject.settings.catalog_url)
    needed = sealing_keys(path) if path is not None and path.exists() else frozenset()
    key_file = subject.home / KEY_FILE
    if not needed and not key_file.exists():
        return [ok("secrets", "none")]
    from penstock.secrets.sealing import load_sealer

    key_id = load_sealer(key_file, create=False).key_id
    foreign = sorted(needed - {key_id})
    if foreign:
        differs = f"encrypted with key {foreign[0]}, but this node has key {key_id}"
        advice = f"Restore key {foreign[0]} in {key_file}, or set the values with ALTER SECRET."
        return [problem("secrets", differs, advice=advice)]
    fine = ok("secrets", f"key {key_id} decrypts them" if needed else "none yet")
    unresolved = [] if subject.app is None else list(_unresolved(subject.app))
    return unresolved or [fine]


def _unresolved(app: "App") -> Iterator[Finding]:
    """Yield a problem for every env: or file: reference that does not resolve."""
    for record in app.catalog.secrets():
        reference = reference_text(SecretReference(name=record.name))
        for key in record.keys:
            try:
                app.vault.reveal(reference, option=key)
            except PenstockError as error:
                yield failure("secrets", error)


def check_clock(subject: Subject) -> list[Finding]:
    """Compare the clock with the newest event in the catalog and with the disk of the home."""
    now = subject.clock.now()
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    newest = None if subject.app is None else _newest_at(subject.app.catalog)
    if newest is not None and newest > now + CLOCK_TOLERANCE:
        early = format_duration(newest - now)
        found = f"{shown}, {early} earlier than the newest event in the catalog"
        advice = "Set the clock. Until then, leases expire late, and paused jobs resume late."
        return [problem("clock", found, advice=advice)]
    gap = abs(_disk_time(subject.home) - subject.clock.now())
    if gap > CLOCK_TOLERANCE:
        differs = f"{shown}; the clock of the disk differs by {format_duration(gap)}"
        advice = "Synchronize the clocks of this machine and of its file server."
        return [warning("clock", differs, advice=advice)]
    return [ok("clock", shown)]


def _newest_at(catalog: Catalog) -> datetime | None:
    instants = [lease.expires_at - LEASE_DURATION for lease in catalog.leases().values()]
    for state in catalog.jobs():
        known = (state.created_at, state.committed_at, state.desired.changed_at)
        instants += [at for at in known if at is not None]
    return max(instants, default=None)


def _disk_time(home: Path) -> datetime:
    """Return the modification time of a new file in the home."""
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-") as file:
            return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    except OSError:
        # check_home reports a home that cannot be written.
        return datetime.now(UTC)
