"""The torture suite is in the benchmarks folder, which is not a package: put it on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "torture"))
