"""Targets: local copies of RocksDB and LMDB, with their marker left as it was, and with a new one."""

import json
import os
import shutil

import millpond as mp
from millpond.backend.ownership import MARKER_FILE, CleanShutdown
from millpond_conformance.opening import open_at

from tests.fuzz.files import corpus, fingerprint
from tests.fuzz.mutate import mutate_bytes, mutate_tree
from tests.fuzz.runner import DEATH, EQUAL, OUTCOMES, REFUSED, WRONG

__all__ = ["TARGETS"]

MORE = mp.MapStateDescriptor("more", int, str)


class Copies:
    """A closed backend's directory; each mutant begins with the same files under a sound marker."""

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
        """What the copy holds; None where it was not taken."""
        with open_at(self.backend, self.directory, {"v1"}) as backend:
            if backend.version is None:
                return None
            found = corpus.contents(backend)
            found["more"] = sorted(backend.get_partitioned_state(MORE).items())
            backend.num_state_entries()
            return fingerprint(found)

    def lay(self, files):
        """Lay out files anew."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for name, data in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def mark(self):
        """Mark the files as those of a backend that was closed in good order."""
        CleanShutdown.of_directory(self.directory, "v1").write(self.directory)

    def outcome(self):
        """What becomes of the copy as it lies there."""
        found = self.contents()
        return REFUSED if found is None else EQUAL if found == self.expected else WRONG

    def run(self, rng):
        """Damage a file or the marker, so that they do not fit."""
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
        """A changed marker for the same files."""
        path = self.directory / MARKER_FILE
        path.write_text(json.dumps(mutate_tree(rng, json.loads(path.read_text()))))


class Forged(Copies):
    """The same with a new, sound marker for the damaged files: the store has to find it."""

    def run(self, rng):
        name = rng.choice(list(self.files))
        self.lay({**self.files, name: mutate_bytes(rng, self.files[name])})
        self.mark()
        return self.outcome(), sum(map(len, self.files.values()))


class LmdbCopies(Copies):
    """LMDB's."""

    backend = "lmdb"


class LmdbForged(Forged):
    """LMDB's, whose pages have no checksums: a bound that is counted, each in a child."""

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
