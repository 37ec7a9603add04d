"""Draw docs/pictures/demo.svg: a part of the output of ``make demo``.

Runs the demo, keeps the first kill, the last run and the count, and shortens the lines of
progress.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS = 120
STEPS = "367"
OMITTED = "SHOW SHARDS"
PROGRESS = re.compile(r"\d\d:\d\d:\d\dZ ")
PROGRESS_LINES_MAX = 3


def main() -> None:
    """Run the demo and draw the picture."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    command = [sys.executable, "-m", "examples.demo"]
    demo = subprocess.run(  # noqa: S603 - The command is ours.
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [Text.from_ansi(line) for line in demo.stdout.splitlines()]
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for line in shortened(lines):
        line.truncate(COLUMNS, overflow="ellipsis")
        console.print(line, highlight=False, soft_wrap=True)
    # The fonts of the template would be fetched from another server.
    template = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    svg = console.export_svg(title="make demo", code_format=template, unique_id="demo")
    PICTURE.write_text(svg.replace("Fira Code", "DejaVu Sans Mono, Menlo"), "utf-8")


def shortened(lines: list[Text]) -> Iterator[Text]:
    """Yield the lines of the chosen steps; of long progress, the last lines only."""
    step = ""
    omitted = False
    progress: list[Text] = []
    for line in lines:
        heading = re.match(r"(\d)  .*──", line.plain)
        step = heading[1] if heading else step
        if heading or line.plain.startswith("$ "):
            omitted = OMITTED in line.plain
        if step not in STEPS or omitted:
            continue
        if PROGRESS.match(line.plain):
            progress.append(line)
            continue
        if len(progress) > PROGRESS_LINES_MAX:
            yield Text("…")
        yield from progress[-PROGRESS_LINES_MAX:]
        progress = []
        yield line


if __name__ == "__main__":
    main()
