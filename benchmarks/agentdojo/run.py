"""AgentDojo's user tasks through `treadle.Loop`: python benchmarks/agentdojo/run.py.

It makes a virtual environment beside this file, puts a pinned `agentdojo` and this checkout of treadle into
it, and runs evaluate.py there with the options that it was given. AgentDojo brings some seventy packages,
which should not be where treadle is developed. Run again, it finds the environment as it left it.
Any Python that treadle takes will do; nothing but its standard library is needed here.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PINNED = "agentdojo==0.1.35"


def main() -> int:
    python = prepare(HERE / ".venv")
    return subprocess.run([python, HERE / "evaluate.py", *sys.argv[1:]], check=False).returncode


def prepare(folder: Path) -> Path:
    """Make the virtual environment, unless it is there as it has to be. Returns its interpreter."""
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = folder / ".installed"
    wanted = describe()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {PINNED} into {folder.relative_to(ROOT)}: about a minute", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", PINNED, "--editable", ROOT], check=True)
    stamp.write_text(wanted)
    return python


def describe() -> str:
    """What the environment is made of; where this changes, it is made anew."""
    metadata = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return f"{sys.executable}\n{sys.version}\n{PINNED}\n{ROOT}\n{metadata}\n"


if __name__ == "__main__":
    sys.exit(main())
