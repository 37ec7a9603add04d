"""Figures of a benchmark: the measured value, its baseline, and whether the goal is met."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

_DIGITS_MIN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a ratio."""

    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, ratio: float) -> bool:
        """Return whether a ratio is within the bound."""
        if self.at_least is not None and ratio < self.at_least:
            return False
        return self.at_most is None or ratio <= self.at_most

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A ratio to another figure of the same run."""

    ratio: float
    against: str
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        return None if self.goal is None else self.goal.met_by(self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value with its comparisons."""

    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    comparisons: tuple[Comparison, ...] = ()

    def against(self, *comparisons: Comparison) -> "Figure":
        """Return the figure with comparisons."""
        return replace(self, comparisons=comparisons)


def of_samples(name: str, samples: Sequence[float], unit: str) -> Figure:
    """Return the median of samples with the lowest and highest value."""
    spread = (min(samples), max(samples))
    return Figure(name=name, value=median(samples), unit=unit, spread=spread)


def paired_ratio(samples: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of each round, because noise affects both samples."""
    return median(one / other for one, other in zip(samples, others, strict=True))


def print_figures(figures: Sequence[Figure], console: Console) -> None:
    """Print the figures as one table."""
    table = Table(box=box.SIMPLE_HEAD)
    # On a narrow terminal the texts wrap, but the numbers do not.
    table.add_column("what")
    for heading in ("median", "lowest … highest", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("to")
    for heading in ("goal", "met"):
        table.add_column(heading, no_wrap=True)
    for figure in figures:
        spread = " … ".join(_number(bound) for bound in figure.spread or ())
        first = (figure.name, f"{_number(figure.value)} {figure.unit}", spread)
        ratios = [_cells(comparison) for comparison in figure.comparisons] or [("",) * 4]
        for head, rest in zip_longest([first], ratios, fillvalue=("",) * len(first)):
            table.add_row(*head, *rest)
    console.print(table)


def _cells(comparison: Comparison) -> tuple[str, str, str, str]:
    met_texts = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}
    return (
        f"{comparison.ratio:.2f}",
        comparison.against,
        "" if comparison.goal is None else str(comparison.goal),
        met_texts[comparison.met],
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _DIGITS_MIN else f"{value:.3g}"


def save_figures(figures: Sequence[Figure], about: dict[str, object], path: Path) -> None:
    """Write the figures as JSON."""
    rows = [asdict(figure) for figure in figures]
    path.write_text(json.dumps({"about": about, "figures": rows}, indent=2) + "\n")
