"""The trials of `benchmarks/chaos.py` are in the benchmarks folder, which is not a package: put it on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
