"""Targets: local copies of RocksDB and LMDB, with the original marker and with a new one."""

import json
import os
import shutil

import millpond as mp
from millpond.backend.working_directory import MARKER_FILE, CleanShutdown
from millpond_conformance.opening import open_at

from tests.fuzz.files import corpus, fingerprint
from tests.fuzz.mutate import mutate_bytes, mutate_tree
from tests.fuzz.runner import DEATH, EQUAL, OUTCOMES, REFUSED, WRONG

__all__ = ["TARGETS"]

MORE = mp.MapStateDescriptor("more", int, str)


class Copies:
    """The directory of a closed backend; each mutant starts from the same files with a valid marker."""

    weight = 0.5

    backend = "rocksdb"

    def __init__(self, folder):
        self.directory = folder / "copy"
        with open_at(self.backend, self.directory) as backend:
            corpus.fill(backend)
            backend.get_partitioned_state(MORE).put_all({n: f"value {n}" for n in range(500)})
            backend.flush("v1")
        self.files = {
            path.relative_to(self.directory): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file() and path.name != MARKER_FILE
        }
        self.expected = self.contents()
        assert self.expected is not None

    def contents(self):
        """Return the content of the copy; None if it was not opened."""
        with open_at(self.backend, self.directory, {"v1"}) as backend:
            if backend.version is None:
                return None
            found = corpus.contents(backend)
            found["more"] = sorted(backend.get_partitioned_state(MORE).items())
            backend.num_state_entries()
            return fingerprint(found)

    def lay(self, files):
        """Restore the files."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for name, data in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def mark(self):
        """Write a marker of a clean shutdown for the current files."""
        CleanShutdown.of_directory(self.directory, "v1").write(self.directory)

    def outcome(self):
        """Return the outcome for the current copy."""
        found = self.contents()
        return REFUSED if found is None else EQUAL if found == self.expected else WRONG

    def run(self, rng):
        """Damage a file or the marker, so that they do not match."""
        self.lay(self.files)
        self.mark()
        kind = rng.randrange(5)
        path = self.directory / rng.choice(list(self.files))
        if kind == 0:
            path = self.directory / MARKER_FILE
            path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        elif kind == 1:
            self.mutate_marker(rng)
        elif kind == 2:
            path.unlink()
        elif kind == 3:
            path.with_name(rng.choice(("000001.sst", "LOCK2", "MANIFEST-000099"))).write_bytes(b"x")
        else:
            path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return self.outcome(), sum(map(len, self.files.values()))

    def mutate_marker(self, rng):
        """Return a changed marker for the same files."""
        path = self.directory / MARKER_FILE
        path.write_text(json.dumps(mutate_tree(rng, json.loads(path.read_text()))))


class Forged(Copies):
    """Local copies with a valid marker for damaged files, so that the store itself has to find the damage."""

    def run(self, rng):
        name = rng.choice(list(self.files))
        self.lay({**self.files, name: mutate_bytes(rng, self.files[name])})
        self.mark()
        return self.outcome(), sum(map(len, self.files.values()))


class LmdbCopies(Copies):
    """Copies of LMDB."""

    backend = "lmdb"


class LmdbForged(Forged):
    """Forged copies of LMDB, which has no checksums: a documented limit; each runs in a child."""

    backend = "lmdb"
    bound = True

    def outcome(self):
        child = os.fork()
        if not child:
            status = 9
            try:
                status = OUTCOMES.index(super().outcome())
            except mp.errors.MillpondError:
                status = OUTCOMES.index(REFUSED)
            finally:
                os._exit(status)
        found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return OUTCOMES[found] if 0 <= found < len(OUTCOMES) else DEATH


TARGETS = {
    "rocksdb-copies": Copies,
    "lmdb-copies": LmdbCopies,
    "rocksdb-forged-copies": Forged,
    "lmdb-forged-copies": LmdbForged,
}
