"""Has a process import one module with a change: Python runs this at the start of each process."""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

_MUTANT = os.environ.get("MILLPOND_MUTANT", "")


class _Loader(SourceFileLoader):
    """Compiles the module with one place changed."""

    def get_code(self, fullname):
        from mutate import mutated

        source = Path(self.path).read_text(encoding="utf-8")
        return compile(mutated(source, int(_MUTANT.partition(":")[2])), self.path, "exec")


class _Finder(PathFinder):
    """Finds the one module."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname != _MUTANT.partition(":")[0]:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


if _MUTANT:
    sys.meta_path.insert(0, _Finder)
