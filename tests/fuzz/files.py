"""Targets: handles, metadata of snapshots, snapshot files, savepoints, layouts, operator state."""

import base64
import hashlib
import json
import sys

import attrs
import millpond as mp
import pyarrow as pa
from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.snapshots.bundle import seal_metadata, write_sealed
from millpond.snapshots.catalog import read_catalog
from millpond.snapshots.operator_state import read_operator_state
from millpond.snapshots.row_files import Packing, pack, unpack
from millpond_cli.inspection.orphans import orphans
from millpond_cli.inspection.stored_operator import open_stored, state_table
from millpond_spark.plan.layout import Layout, read_layout, write_layout

from tests.fuzz.mutate import mutate_bytes, mutate_tree
from tests.fuzz.runner import CHANGED, EQUAL, WRONG
from tests.golden import make as corpus

BACKENDS = ["heap"] * 38 + ["lmdb", "rocksdb"]


def fingerprint(found):
    """Return values as text, in which NaN equals itself."""
    sys.set_int_max_str_digits(0)  # a mutant may contain a longer int than repr allows by default
    return repr(sorted(found.items(), key=repr))


class Snapshots:
    """A snapshot of a base and a delta with values of every type, and its use."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "snapshots"
        self.storage = mp.checkpoint_storage(str(self.root))
        with mp.open_keyed_backend(
            "heap", key_type=str, clock=mp.ManualClock(0), place="q/op"
        ) as backend:
            backend.set_current_key("bob")
            backend.get_partitioned_state(corpus.STATES["str"][0]).update("before")
            backend.snapshot(1, self.storage).result()
            backend.notify_checkpoint_complete(1)
            corpus.fill(backend)
            for key in corpus.KEYS:
                corpus.log_of(backend, key).update(corpus.LOGGED)
            self.handle = backend.snapshot(2, self.storage).result().handle
        self.tree = json.loads(self.handle.to_json())
        self.expected = fingerprint(corpus.expected())
        self.runs = 0

    def use(self, rng, handle):
        """Restore on a random backend and read everything."""
        self.runs += 1
        with mp.open_keyed_backend(
            rng.choice(BACKENDS),
            key_type=str,
            directory=self.folder / f"local-{self.runs}",
            clock=mp.ManualClock(0),
            restore=[handle],
            place="q/op",
        ) as backend:
            found = fingerprint(corpus.contents(backend))
            backend.num_state_entries()
        return found

    def outcome(self, found, *, mended):
        """Return "equal", or the class of the difference."""
        if found == self.expected:
            return EQUAL
        return CHANGED if mended else WRONG

    def file(self, path):
        """Return a file of the snapshot."""
        return self.root / path


class Handles(Snapshots):
    """The JSON of a handle, which has no digest of its own."""

    weight = 2.4

    def run(self, rng):
        if rng.random() < 0.8:
            text = json.dumps(mutate_tree(rng, self.tree))
        else:
            text = mutate_bytes(rng, json.dumps(self.tree).encode()).decode("utf-8", "replace")
        handle = mp.KeyedStateHandle.from_json(text, self.storage)
        return self.outcome(self.use(rng, handle), mended=True), len(text)


class Metadata(Snapshots):
    """The metadata at the end of snapshots, read by tools; with old and corrected digests."""

    weight = 1.6

    def __init__(self, folder):
        super().__init__(folder)
        self.path = self.file(self.handle.metadata)
        self.original = self.path.read_bytes()
        last = self.handle.files[-1]
        self.rows = self.original[: last.offset + last.size]
        self.table = state_table(
            open_stored(get_registry().savepoint(self.root), get_registry())[0], "int"
        )

    def run(self, rng):
        mended = rng.random() < 0.7
        if mended:
            sealed = seal_metadata(json.dumps(mutate_tree(rng, self.tree)))
            trailer = len(sealed).to_bytes(4, "big") + b"MILLHNDL"
            self.path.write_bytes(self.rows + sealed + trailer)
        else:
            self.path.write_bytes(mutate_bytes(rng, self.original))
        size = self.path.stat().st_size
        try:
            read_catalog(self.storage)
            found = open_stored(get_registry().savepoint(self.root), get_registry())[0]
            for meta in found.states:
                state_table(found, meta.name)
            same = state_table(found, "int").equals(self.table)
            orphans(read_catalog(self.storage), 1)
        finally:
            self.path.write_bytes(self.original)
        return (EQUAL if same else CHANGED if mended else WRONG), size


class Rows(Snapshots):
    """Snapshot files, with old digests, or corrected ones after a change of rows, stream or footer."""

    weight = 1.6

    kinds = (0, 1, 2, 3, 4)

    def __init__(self, folder):
        super().__init__(folder)
        self.which = self.handle.files[-1]
        self.path = self.file(self.which.path)
        self.original = self.path.read_bytes()
        rows = self.original[: self.which.offset + self.which.size]
        self.footer = json.loads(rows[-self.which.footer : -12])

    def run(self, rng):
        kind = rng.choice(self.kinds)
        if kind == 0:
            self.path.write_bytes(mutate_bytes(rng, self.original))
            handle = self.handle
        else:
            handle = self.mended(rng, kind)
        try:
            found = self.use(rng, handle)
        finally:
            size = self.path.stat().st_size
            self.path.write_bytes(self.original)
        return self.outcome(found, mended=kind > 0), size

    def mended(self, rng, kind):
        """Return a changed file with correct digests, and its handle."""
        (entry,) = json.loads(json.dumps(self.footer["segments"]))
        data = self.original[: entry["length"]]
        if kind == 1:
            data = mutate_bytes(rng, data)
        elif kind == 2:
            stream = pa.decompress(
                data, decompressed_size=entry["stream_bytes"], codec="lz4_raw", asbytes=True
            )
            stream = mutate_bytes(rng, stream)
            entry["stream_bytes"] = len(stream)
            data = pa.compress(stream, codec="lz4_raw", asbytes=True)
        elif kind == 3:
            data = self.with_rows(rng, data, entry)
        entry.update(length=len(data), digest=hashlib.sha256(data).hexdigest())
        footer = {**self.footer, "segments": [entry]}
        text = json.dumps(mutate_tree(rng, footer) if kind == 4 else footer).encode()
        if kind == 4 and rng.random() < 0.2:
            text = mutate_bytes(rng, text)
        tail = text + len(text).to_bytes(4, "big") + b"MILLPOND"
        self.path.write_bytes(data + tail)
        file = attrs.evolve(
            self.which,
            size=len(data) + len(tail),
            footer=len(tail),
            digest=hashlib.sha256(tail).hexdigest(),
        )
        return attrs.evolve(self.handle, files=(*self.handle.files[:-1], file))

    def with_rows(self, rng, data, entry):
        """Return the segment with some changed keys and values."""
        batch = unpack("x", data, entry["stream_bytes"], 1 << 20)
        indexes, keys, values = (column.to_pylist() for column in batch.columns)
        for _ in range(rng.choice((1, 3, 10))):
            at = rng.randrange(len(keys))
            what = rng.randrange(4)
            if what == 0:
                keys[at] = keys[at][:1] + mutate_bytes(rng, keys[at][1:])
            elif what == 1:
                indexes[at] = rng.randrange(len(self.footer["states"]) + 1)
            else:
                values[at] = mutate_bytes(rng, values[at] or b"")
        made, entry["stream_bytes"], entry["compression"] = pack(indexes, keys, values, Packing())
        groups = [key[0] for key in keys]
        entry.update(first_group=min(groups), last_group=max(groups))
        return made


class Values(Rows):
    """Keys and values of stored rows, with correct digests."""

    kinds = (3,)


class Native(Snapshots):
    """The handle of a snapshot of RocksDB's own files: inlined files, names, sizes."""

    weight = 0.6

    def __init__(self, folder):
        super().__init__(folder)
        config = mp.Config({"state.snapshot.strategy": "incremental"})
        with mp.open_keyed_backend(
            "rocksdb", key_type=str, directory=folder / "r", clock=mp.ManualClock(0), config=config
        ) as backend:
            corpus.fill(backend)
            self.tree = json.loads(backend.snapshot(1, self.storage).result().handle.to_json())

    def run(self, rng):
        if rng.random() < 0.5:
            tree = mutate_tree(rng, self.tree)
        else:
            tree = json.loads(json.dumps(self.tree))
            file = rng.choice([file for file in tree["files"] if file["inline"]])
            data = mutate_bytes(rng, base64.b64decode(file["inline"]))
            file["inline"] = base64.b64encode(data).decode()
        text = json.dumps(tree)
        handle = mp.KeyedStateHandle.from_json(text, self.storage)
        return self.outcome(self.use(rng, handle), mended=True), len(text)


class Savepoints(Snapshots):
    """Savepoints: metadata and tables, with old and corrected digests; read, sealed and re-keyed."""

    weight = 0.7

    def __init__(self, folder):
        super().__init__(folder)
        self.saved = folder / "saved"
        with mp.open_keyed_backend(
            "heap", key_type=str, clock=mp.ManualClock(0), place="q/op", restore=[self.handle]
        ) as backend:
            storage = mp.checkpoint_storage(str(self.saved))
            backend.strategy("savepoint").save(3, storage, "").result()
        self.meta = self.saved / "savepoint.json"
        self.originals = {p: p.read_bytes() for p in self.saved.rglob("*") if p.is_file()}
        self.body = json.loads(self.meta.read_text())["savepoint"]

    def run(self, rng):
        kind = rng.randrange(5)
        if kind == 0:
            path = rng.choice(list(self.originals))
            path.write_bytes(mutate_bytes(rng, self.originals[path]))
        elif kind in (1, 2):
            self.write_meta(mutate_tree(rng, self.body))
        else:
            self.mutate_table(rng)
        size = sum(path.stat().st_size for path in self.originals)
        try:
            if kind == 4:
                mp.seal_savepoint(str(self.saved))
            found = self.use(rng, str(self.saved))
            if rng.random() < 0.05:
                self.runs += 1
                target = str(self.folder / f"rekeyed-{self.runs}")
                mp.rekey_savepoint(str(self.saved), target, 256)
        finally:
            for path, data in self.originals.items():
                path.write_bytes(data)
        return self.outcome(found, mended=kind > 0), size

    def write_meta(self, body):
        """Write metadata with a correct digest."""
        try:
            digest = hashlib.sha256(json.dumps(body, indent=1).encode()).hexdigest()
        except UnicodeEncodeError:
            digest = ""
        self.meta.write_text(json.dumps({"sha256": digest, "savepoint": body}))

    def mutate_table(self, rng):
        """Change a table, and correct its size and digest."""
        body = json.loads(json.dumps(self.body))
        state = rng.choice([s for s in body["operators"][0]["states"] if s["files"]])
        path = self.saved / state["files"][0]["path"]
        data = mutate_bytes(rng, self.originals[path])
        path.write_bytes(data)
        state["files"][0].update(size=len(data), digest=hashlib.sha256(data).hexdigest())
        self.write_meta(body)


class Layouts(Snapshots):
    """The layouts, in which Spark's driver records how key groups are divided."""

    weight = 3

    def __init__(self, folder):
        super().__init__(folder)
        layout = Layout(1, 2, 128, (self.handle,))
        write_layout(self.storage, OperatorId("q", "op"), layout)
        self.path = self.root / "q/op/layout/00000001.json"
        self.original = self.path.read_bytes()
        self.body = json.loads(json.loads(self.original)["content"])

    def run(self, rng):
        mended = rng.random() < 0.8
        if mended:
            body = mutate_tree(rng, self.body)
            if isinstance(body, dict) and rng.random() < 0.5:
                body["sources"] = [json.dumps(mutate_tree(rng, self.tree))]
            write_sealed(self.storage, "q/op/layout/00000001.json", json.dumps(body))
        else:
            self.path.write_bytes(mutate_bytes(rng, self.original))
        size = self.path.stat().st_size
        try:
            layout = read_layout(self.storage, OperatorId("q", "op"), 1)
            shares = layout.shares(RestoreConfig())
            for index in range(min(layout.parallelism, 4)):
                layout.sources_of(index, shares)
            read_catalog(self.storage)
        finally:
            self.path.write_bytes(self.original)
        same = layout.sources == (self.handle,) and layout.parallelism == 2
        return (EQUAL if same else CHANGED if mended else WRONG), size


class OperatorState:
    """Operator state: its handle, and the file of its elements."""

    weight = 3

    def __init__(self, folder):
        self.storage = mp.checkpoint_storage(str(folder / "o"))
        with mp.open_operator_backend() as backend:
            items = backend.get_list_state(mp.ListStateDescriptor("items", int))
            items.add_all([1, 1 << 70, -3])
            rules = backend.get_broadcast_state(mp.MapStateDescriptor("rules", str, float))
            rules.put("a", 0.5)
            self.handle = backend.snapshot(1, self.storage).result().handle
        self.tree = json.loads(self.handle.to_json())
        self.path = folder / "o" / self.handle.file.path
        self.original = self.path.read_bytes()

    def run(self, rng):
        tree = self.tree
        if rng.random() < 0.5:
            tree = mutate_tree(rng, tree)
        else:
            data = mutate_bytes(rng, self.original)
            self.path.write_bytes(data)
            if rng.random() < 0.8:
                tree = json.loads(json.dumps(tree))
                digest = hashlib.sha256(data).hexdigest()
                tree["file"].update(size=len(data), digest=digest)
        text = json.dumps(tree)
        try:
            handle = mp.OperatorStateHandle.from_json(text, self.storage)
            read_operator_state([handle])
            mp.redistribute_operator_state([handle, None], 3)
            with mp.open_operator_backend(restore=[handle]) as backend:
                items = backend.get_list_state(mp.ListStateDescriptor("items", int))
                rules = backend.get_broadcast_state(mp.MapStateDescriptor("rules", str, float))
                same = list(items.get()) == [1, 1 << 70, -3] and dict(rules.items()) == {"a": 0.5}
        finally:
            self.path.write_bytes(self.original)
        return (EQUAL if same else CHANGED), len(text)


TARGETS = {
    "handles": Handles,
    "metadata": Metadata,
    "rows": Rows,
    "values": Values,
    "rocksdb-handles": Native,
    "savepoints": Savepoints,
    "layouts": Layouts,
    "operator-state": OperatorState,
}
