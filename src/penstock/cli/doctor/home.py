"""Checks of the home: its folder, settings, catalog, warehouse, secrets and clock."""

import fcntl
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog
from penstock.catalog.glance import catalog_path, glance_at, sealing_keys
from penstock.catalog.upgrade import HEAD
from penstock.cli.doctor.finding import Finding, Outcome, Subject
from penstock.epochs.takeover import LEASE_DURATION
from penstock.errors import PenstockError
from penstock.model.secrets import SecretReference, reference_text
from penstock.model.text import counted, lasted, sized
from penstock.settings.home import origins
from penstock.settings.settings import FILE_NAME, KEY_FILE, Settings

if TYPE_CHECKING:
    from penstock.app import App

CREATES = "penstock init, or any statement, creates it"
SPACE_MIN_BYTES = 100 * 10**6
SPACE_LOW_BYTES = 10**9
CLOCK_TOLERANCE = timedelta(seconds=2)
# SQLite's and our own locks are not to be trusted on these.
REMOTE = re.compile(r"9p|afs|ceph|cifs|fuse\..*|glusterfs|lustre|nfs4?|smb.*|vboxsf")
IN_MEMORY = frozenset({"ramfs", "tmpfs"})


def check_home(subject: Subject) -> Iterator[Finding]:
    """Look whether the folder is there, may be written, locks, and has room."""
    home = subject.home
    if not home.exists():
        missing = f"{home} does not exist"
        yield Finding(check="home", outcome=Outcome.WARNING, found=missing, advice=CREATES)
        return
    try:
        _try_lock(home)
    except OSError as error:
        refused = f"{home} cannot be written: {error.strerror}"
        advice = "Let this user write it, or choose another with --home or PENSTOCK_HOME."
        yield Finding(check="home", outcome=Outcome.PROBLEM, found=refused, advice=advice)
        return
    yield _about_disk("home", home, nearest=home)


def _try_lock(folder: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _about_disk(check: str, folder: Path, *, nearest: Path) -> Finding:
    """Say how much room there is, and what is to be known about the file system."""
    kind = file_system_of(nearest, _mounts())
    free_bytes = shutil.disk_usage(nearest).free
    found = f"{folder}, {sized(free_bytes)} free" + (f", {kind}" if kind else "")
    outcome, advice = Outcome.OK, ""
    if free_bytes < SPACE_MIN_BYTES:
        outcome, advice = Outcome.PROBLEM, "Free some space."
    elif free_bytes < SPACE_LOW_BYTES:
        outcome, advice = Outcome.WARNING, "Free some space soon."
    elif REMOTE.fullmatch(kind) and check == "home":
        outcome = Outcome.WARNING
        advice = "Choose a home on a disk of this machine: locks fail on network file systems."
    elif kind in IN_MEMORY:
        outcome = Outcome.WARNING
        advice = "Choose a place on a disk: this one is empty after a restart of the machine."
    return Finding(check=check, outcome=outcome, found=found, advice=advice)


def file_system_of(folder: Path, mounts: str) -> str:
    """Answer the kind of the file system that a folder is on; empty if that is not known."""
    best = Path(), ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        if folder.is_relative_to(point) and len(point.parts) >= len(best[0].parts):
            best = point, after.split()[0]
    return best[1]


def _mounts() -> str:
    path = Path("/proc/self/mountinfo")
    return path.read_text() if path.exists() else ""


def check_settings(subject: Subject) -> Iterator[Finding]:
    """Tell which settings are given, and where; the rest have their defaults."""
    error = subject.settings_error
    if error is not None:
        yield Finding(
            check="settings", outcome=Outcome.PROBLEM, found=error.message, advice=error.hint
        )
        return
    path = subject.home / FILE_NAME
    from_file = tomllib.loads(path.read_text()) if path.exists() else {}
    origin_by_key = origins(from_file, subject.environment)
    values = _values(subject.settings)
    given = [f"{key}{values.get(key, '')} from {at}" for key, at in origin_by_key.items()]
    rest = "all others are defaults" if given else "all are defaults"
    yield Finding(check="settings", found="; ".join([*given, rest]))


def _values(settings: Settings) -> Mapping[str, str]:
    """Answer what may be shown; keys of Spark may be credentials."""
    names = ", ".join(sorted(settings.spark.conf))
    return {
        "home": f" = {settings.home}",
        "warehouse": f" = {settings.warehouse_location}",
        "warehouse_secret": f" = {settings.warehouse_secret}",
        "catalog.url": f" = {settings.catalog_url}",
        "spark.master": f" = {settings.spark.master}",
        "spark.conf": f" ({names})",
    }


def check_catalog(subject: Subject) -> Iterator[Finding]:
    """Look whether the catalog opens, is sound and current, and how much it holds."""
    path = catalog_path(subject.settings.catalog_url)
    if path is None or not path.exists():
        none = "none yet" if path else f"{subject.settings.catalog_url} is no file"
        yield Finding(check="catalog", found=none, advice="The first statement makes one.")
        return
    seen = glance_at(path)
    held = f"{path}: {counted(seen.jobs, 'job')}, {counted(seen.tables, 'table')}"
    if seen.damage:
        damaged, restore = f"{path} is damaged: {seen.damage}", "Restore the file from a copy."
        yield Finding(check="catalog", outcome=Outcome.PROBLEM, found=damaged, advice=restore)
    elif subject.app_error:
        failed = f"{held}; it cannot be opened: {subject.app_error}"
        yield Finding(check="catalog", outcome=Outcome.PROBLEM, found=failed)
    elif seen.revision == HEAD:
        yield Finding(check="catalog", found=f"{held}, sound, revision {HEAD}")
    else:
        yield _about_revision(held, seen.revision)


def _about_revision(held: str, revision: str | None) -> Finding:
    if revision is not None and revision > HEAD:
        newer = f"{held}; a newer Penstock made its revision {revision}, we know {HEAD}"
        return Finding(
            check="catalog",
            outcome=Outcome.PROBLEM,
            found=newer,
            advice="Upgrade Penstock.",
        )
    return Finding(
        check="catalog",
        outcome=Outcome.WARNING,
        found=f"{held}; its revision is {revision or 'none'}, {HEAD} is current",
        advice="Copy the home; then the next statement or run brings it up to date.",
    )


def check_warehouse(subject: Subject) -> Iterator[Finding]:
    """Look whether new tables can be made; a bucket is tried by writing a small object."""
    place = subject.settings.warehouse_location
    if "://" in place and not place.startswith("file://"):
        yield _about_bucket(subject, place)
        return
    folder = Path(place.removeprefix("file://"))
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(
            check="warehouse",
            outcome=Outcome.PROBLEM,
            found=f"{folder} cannot be written",
            advice=f"Let this user write {nearest}, or set warehouse in {FILE_NAME}.",
        )
        return
    yield _about_disk("warehouse", folder, nearest=nearest)


def _about_bucket(subject: Subject, place: str) -> Finding:
    if subject.app is None:
        later = f"{place}, not looked at before there is a catalog"
        return Finding(check="warehouse", found=later, advice="The first statement makes one.")
    if not subject.quick:
        return Finding(check="warehouse", found=subject.app.check_warehouse())
    secret = subject.settings.warehouse_secret
    if secret:
        # Only whether it is there: what it refers to is the matter of another check.
        subject.app.vault.reveal_all(secret, known=())
    return Finding(check="warehouse", found=f"{place}, not asked (--quick)")


def check_secrets(subject: Subject) -> Iterator[Finding]:
    """Look whether the key opens the secrets, and whether what they refer to is there."""
    path = catalog_path(subject.settings.catalog_url)
    needed = sealing_keys(path) if path is not None and path.exists() else frozenset()
    key_file = subject.home / KEY_FILE
    if not needed and not key_file.exists():
        yield Finding(check="secrets", found="none")
        return
    from penstock.secrets.sealing import load_sealer

    held = load_sealer(key_file, create=False).key_id
    foreign = sorted(needed - {held})
    if foreign:
        yield Finding(
            check="secrets",
            outcome=Outcome.PROBLEM,
            found=f"sealed with the key {foreign[0]}, and this node has {held}",
            advice=f"Bring that key back as {key_file}, or give the values again: ALTER SECRET",
        )
        return
    lost = [] if subject.app is None else list(_lost_values(subject.app))
    if not lost:
        yield Finding(
            check="secrets", found=f"the key {held} opens them" if needed else "none yet"
        )
    yield from lost


def _lost_values(app: "App") -> Iterator[Finding]:
    """Tell of every value of a secret that stands elsewhere, and cannot be found there."""
    for record in app.catalog.secrets():
        reference = reference_text(SecretReference(name=record.name))
        for key in record.keys:
            try:
                app.vault.reveal(reference, option=key)
            except PenstockError as error:
                lost = f"{error.message}. {error.detail}".rstrip(". ")
                yield Finding(
                    check="secrets", outcome=Outcome.PROBLEM, found=lost, advice=error.hint
                )


def check_clock(subject: Subject) -> Iterator[Finding]:
    """Compare the clock with the newest event of the catalog, and with the home's disk."""
    now = subject.clock.now()
    newest = None if subject.app is None else newest_at(subject.app.catalog)
    if newest is not None and newest > now + CLOCK_TOLERANCE:
        yield Finding(
            check="clock",
            outcome=Outcome.PROBLEM,
            found=f"{_instant(now)}, which is {lasted(newest - now)} before the newest event "
            "in the catalog",
            advice="Set the clock; until then leases and resumes wait too long.",
        )
        return
    gap = _disk_time(subject.home) - subject.clock.now()
    if abs(gap) > CLOCK_TOLERANCE:
        yield Finding(
            check="clock",
            outcome=Outcome.WARNING,
            found=f"{_instant(now)}; the disk of the home differs by {lasted(abs(gap))}",
            advice="Set the clocks of this machine and of its file server alike.",
        )
        return
    yield Finding(check="clock", found=_instant(now))


def newest_at(catalog: Catalog) -> datetime | None:
    """Answer the time of the newest thing that the catalog remembers."""
    instants = [lease.expires_at - LEASE_DURATION for lease in catalog.leases().values()]
    for state in catalog.jobs():
        known = (state.created_at, state.committed_at, state.wish.changed_at)
        instants += [at for at in known if at is not None]
    return max(instants, default=None)


def _disk_time(home: Path) -> datetime:
    """Answer what time the file system gives a file that is written now."""
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-") as file:
            return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    except OSError:
        # A home that cannot be written is told by its own check.
        return datetime.now(UTC)


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
