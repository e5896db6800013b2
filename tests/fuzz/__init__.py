"""Mutants of all files that outlive a process, and odd calls: ``python -m fuzz`` in ``tests/``."""

import sys
from pathlib import Path

# What others have made is used here too, and a child of the runner has no pytest to find it.
for subject in ("golden", "tools"):
    sys.path.append(str(Path(__file__).parents[1] / subject))
