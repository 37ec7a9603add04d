"""What a check found, and what checks look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.settings.settings import Settings

if TYPE_CHECKING:
    from penstock.app import App


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report: what was looked at, what was found, what to type next."""

    check: str
    found: str
    outcome: Outcome = Outcome.OK
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The node that is looked at."""

    # With their defaults where what was given cannot be read.
    settings: Settings
    settings_error: PenstockError | None
    # None where there is no catalog yet, or none that this version can open as it is.
    app: "App | None"
    app_error: str
    quick: bool
    clock: Clock
    environment: Mapping[str, str]

    @property
    def home(self) -> Path:
        """The home of the node, which may not exist."""
        return self.settings.home
