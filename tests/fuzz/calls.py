"""Targets: arguments of the public functions, and TOML configuration."""

import os
import warnings

import millpond as mp
from millpond.plugins import get_registry

from tests.arguments import TARGETS as CALLS
from tests.arguments import complaint, random_value, walk
from tests.fuzz.mutate import HOSTILE, mutate_bytes
from tests.fuzz.runner import CHANGED, EQUAL

__all__ = ["TARGETS"]


class BadArgumentError(AssertionError):
    """The error if an argument was not refused as it should be."""


class Arguments:
    """Public functions with one to three odd arguments; see ``tests/arguments``."""

    weight = 3

    def __init__(self, folder):
        os.chdir(folder)
        walk.callables()
        self.names = sorted(CALLS)

    def run(self, rng):
        target = rng.choice(self.names)
        names = [*CALLS[target][1]]
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
        given = {name: random_value(rng, HOSTILE) for name in chosen}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = complaint(target, given)
        if found:
            raise BadArgumentError(f"{target} with {mp.errors.brief(given)}: {found}")
        return EQUAL, 0


SOUND = {
    "state.backend": '"heap"',
    "state.snapshot.max-deltas": "7",
    "state.latency-track.enabled": "true",
    "checkpoint.dir": '"memory:x"',
    "restore.max-file-bytes": '"1gb"',
    "buffer.max-bytes": '"64mb"',
    "plugins.block": '["nothing"]',
    "metrics.reporters": '["log"]',
    "parallelism": "2",
    "backend.rocksdb.bloom-bits": "10",
    "backend.rocksdb.memory": '"25%"',
    "backend.rocksdb.state.total.compression": '"zstd"',
    "backend.lmdb.max-states": "100",
}
LITERALS = [
    *SOUND.values(), "-1", "0", "1e400", "nan", "-inf", "0x1F", "9" * 30, "1979-05-27", "07:32:00",
    "1979-05-27T07:32:00Z", '""', "'''\n'''", '"\\u0000"', '"\\u202e\\u001b[31m"', "[]", "{}",
    "[[1], {}]", "{a = 1}", '{a.b.c = "x"}', "[" * 500 + "]" * 500, '"' + "x" * 9999 + '"', "true",
    '"101%"', '"nan%"', '"٣mb"', '"1e3"', '["heap", 3]', "0.5",
]  # fmt: skip


class Configuration:
    """TOML files with odd keys, values and bytes, read and checked by every backend."""

    weight = 3

    def __init__(self, folder):
        self.path = folder / "job.toml"
        self.keys = [
            *mp.Config.known_keys(),
            *SOUND,
            "backend.nope.x",
            '"".""',
            "state",
            "millpond",
        ]
        self.sound = self.read(self.text(SOUND).encode())
        self.check(self.sound)

    def text(self, values):
        return "[millpond]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())

    def read(self, data):
        self.path.write_bytes(data)
        return mp.Config.from_toml(self.path)

    def check(self, config):
        for name in ("heap", "rocksdb", "lmdb"):
            options = config.backend_options(name)
            get_registry().backend(name).check_options(options)

    def run(self, rng):
        values = dict(SOUND)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            values[rng.choice(self.keys)] = rng.choice(LITERALS)
        data = self.text(values).encode()
        if rng.random() < 0.4:
            data = mutate_bytes(rng, data)
        config = self.read(data)
        self.check(config)
        return (EQUAL if config == self.sound else CHANGED), len(data)


TARGETS = {"arguments": Arguments, "configuration": Configuration}
