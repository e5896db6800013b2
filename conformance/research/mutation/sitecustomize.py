"""Make a process import one module with a change: Python runs this file at the start of each process."""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path


def mutate_imports(mutant):
    """Make this process import the module of `module:place` with that place changed."""
    module, _, place = mutant.partition(":")

    class Loader(SourceFileLoader):
        """Loader that compiles the module with one place changed."""

        def get_code(self, fullname):
            from conformance.research.mutation.mutate import mutated

            source = Path(self.path).read_text(encoding="utf-8")
            return compile(mutated(source, int(place)), self.path, "exec")

    class Finder(PathFinder):
        """Finder of that one module."""

        @classmethod
        def find_spec(cls, fullname, path=None, target=None):
            if fullname != module:
                return None
            spec = super().find_spec(fullname, path, target)
            if spec is not None:
                spec.loader = Loader(fullname, spec.origin)
            return spec

    sys.meta_path.insert(0, Finder)


if os.environ.get("MILLPOND_MUTANT"):
    mutate_imports(os.environ["MILLPOND_MUTANT"])
