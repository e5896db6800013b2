"""Run wide programs in a process whose modules and stack do not reveal the kit.

A backend could behave differently if it detected the kit. The process therefore runs a plain
script, and the modules that it needs are copied to a package with a random name. Neither
``millpond_conformance`` nor ``pytest`` appears among its modules, on its stack, in its variables or
in its working directory.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from millpond_conformance.wide.running import ProgramResults

_KIT = "millpond_conformance"
_NEEDED = ("comparing.py", "semantics.py", "wrapping.py", "opening.py", "wide")

_SCRIPT = """
import json, os, sys
results = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from NAME.wide.running import play_seeds
backend, wrapped, first, count = sys.argv[1:]
found = play_seeds(backend, range(int(first), int(first) + int(count)), wrapped)
results.write(json.dumps([found.counts, found.message, found.program]))
results.close()
"""


def play_in_shadow(backend: str, seeds: range, wrapped: str = "none") -> ProgramResults:
    """Run the programs of `seeds` on a backend, in a process that does not reveal the kit.

    If the process ends without results, the returned results say that the programs have failed.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        seeds: the seeds of the programs.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
    """
    name = f"job{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix=name) as folder:
        script = _written(Path(folder), name)
        arguments = [backend, wrapped, str(seeds.start), str(len(seeds))]
        done = subprocess.run(  # noqa: S603 - the kit's own code
            [sys.executable, str(script), *arguments],
            env=_environment(),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        said = " ".join(done.stderr[-600:].split())
        return ProgramResults(
            {}, f"the process ended with status {done.returncode} in the middle: {said}"
        )
    counts, message, program = json.loads(done.stdout)
    return ProgramResults(counts, message.replace(name, _KIT), program.replace(name, _KIT))


def _written(folder: Path, name: str) -> Path:
    """Copy the needed modules to the package `name` in `folder`; return the path of the script."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").touch()
    here = Path(__file__).parent
    for needed in _NEEDED:
        for source in sorted([here / needed, *(here / needed).glob("*.py")]):
            if source.is_file():
                target = package / source.relative_to(here)
                target.parent.mkdir(exist_ok=True)
                text = source.read_text(encoding="utf-8")
                text = text.replace(_KIT, name).replace("millpond-wide-", name)
                target.write_text(text, encoding="utf-8")
    script = folder / "main.py"
    script.write_text(_SCRIPT.replace("NAME", name), encoding="utf-8")
    return script


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "HYPOTHESIS_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
