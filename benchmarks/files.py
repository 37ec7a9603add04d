"""Run the benchmarks of file loads: ``make bench``, or this file with --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.suite import main

if __name__ == "__main__":
    sys.exit(main())
