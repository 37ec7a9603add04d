"""Figures of a benchmark: what was measured, against what, and whether the goal is met."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a ratio."""

    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, ratio: float) -> bool:
        """Tell whether a ratio lies within the bound."""
        if self.at_least is not None:
            return ratio >= self.at_least
        return self.at_most is None or ratio <= self.at_most

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report."""

    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    ratio: float | None = None
    against: str = ""
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None or self.ratio is None:
            return None
        return self.goal.met_by(self.ratio)


def of_samples(name: str, samples: Sequence[float], unit: str) -> Figure:
    """Answer the median of samples with their spread."""
    spread = (min(samples), max(samples))
    return Figure(name=name, value=median(samples), unit=unit, spread=spread)


def paired_ratio(samples: Sequence[float], others: Sequence[float]) -> float:
    """Answer the median of the ratios round by round: noise of a round strikes both."""
    return median(one / other for one, other in zip(samples, others, strict=True))


def print_figures(figures: Sequence[Figure], console: Console) -> None:
    """Print the figures as one table."""
    table = Table(title="Penstock, measured", title_justify="left")
    table.add_column("what")
    for heading in ("median", "lowest … highest", "ratio"):
        table.add_column(heading, justify="right")
    for heading in ("against", "goal", "met"):
        table.add_column(heading)
    words = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}
    for figure in figures:
        spread = " … ".join(_number(bound) for bound in figure.spread or ())
        table.add_row(
            figure.name,
            f"{_number(figure.value)} {figure.unit}",
            spread,
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.against,
            "" if figure.goal is None else str(figure.goal),
            words[figure.met],
        )
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save_figures(figures: Sequence[Figure], about: dict[str, object], path: Path) -> None:
    """Write the figures as JSON."""
    rows = [{**asdict(figure), "met": figure.met} for figure in figures]
    path.write_text(json.dumps({"about": about, "figures": rows}, indent=2) + "\n")
