"""A plugin, as a distribution, that logs its import and the calls of its hooks.

``python recorder.py RULES`` uses everything that may call plugins, under rules given as JSON, and
prints what was refused. Environment variables name the distribution's folder (PYTHONPATH) and the
log (RECORDER_LOG).
"""

import json
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import attrs
import millpond as mp
from click.testing import CliRunner
from millpond.operator.opening import configured_backend, open_batch_backend
from millpond.plugins import get_registry
from millpond_cli.main import commands

PLAIN = mp.ValueStateDescriptor("spent", float)
THIRD = Fraction(1, 3)
PLUGIN = """
import os
from fractions import Fraction

import millpond
from millpond.storage.memory import MemoryStorage
from millpond.types import SerializerSnapshot, TypeSerializer
from millpond_heap import HeapStateBackend

MILLPOND_API = 1


def note(what):
    with open(os.environ["RECORDER_LOG"], "a") as log:
        log.write(what + "\\n")


note("import")


class RecorderBackend(HeapStateBackend):
    name = "recorder"


class FractionSerializer(TypeSerializer):
    immutable = True
    type_name = "fraction"

    def check(self, value):
        return value

    def serialize(self, value):
        return str(value).encode()

    def deserialize(self, data):
        return Fraction(data.decode())

    def snapshot(self):
        return SerializerSnapshot("fraction")


@millpond.hookimpl
def millpond_state_backends():
    note("millpond_state_backends")
    return [RecorderBackend()]


@millpond.hookimpl
def millpond_create_state(backend, descriptor):
    note("millpond_create_state")


@millpond.hookimpl
def millpond_wrap_state(descriptor):
    note("millpond_wrap_state")
    return []


@millpond.hookimpl
def millpond_snapshot_strategies(backend):
    note("millpond_snapshot_strategies")
    return []


@millpond.hookimpl
def millpond_restore_operation(backend, handles):
    note("millpond_restore_operation")


@millpond.hookimpl
def millpond_checkpoint_storages():
    note("millpond_checkpoint_storages")
    return {"recorded": lambda uri: MemoryStorage("memory:recorded")}


@millpond.hookimpl
def millpond_serializers():
    note("millpond_serializers")
    return {Fraction: FractionSerializer}


@millpond.hookimpl
def millpond_metric_reporters(config):
    note("millpond_metric_reporters")
    return {"recorder": lambda metrics, labels: note("report")}
"""
HOOKS = {line.split("(")[0].removeprefix("def ") for line in PLUGIN.splitlines()
         if line.startswith("def millpond_")}  # fmt: skip


def install(folder):
    """Write the distribution to a folder for PYTHONPATH."""
    info = folder / "recorder-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "recorder_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Name: recorder\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millpond.plugins]\nrecorder = recorder_plugin\n")
    return folder


class Count(mp.KeyedProcessFunction):
    """Function with one state."""

    def open(self, context):
        """Get the state."""
        self.spent = context.get_state(PLAIN)

    def process_element(self, row, context):
        """Set the state."""
        self.spent.update(1.0)
        yield context.current_key


@attrs.frozen
class Walk:
    """All steps that may call plugins, under one configuration."""

    config: mp.Config
    toml: Path | None
    folder: Path

    @property
    def uri(self):
        """Return the URI of the snapshots."""
        return (self.folder / "snapshots").as_uri()

    def opened(self, backend="heap", key_type=str, key="alice", **more):
        """Return a backend with a current key."""
        given = {"config": self.config, "key_type": key_type, "place": "job", **more}
        opened = mp.open_keyed_backend(backend, **given)
        opened.set_current_key(key)
        return opened

    def update(self, descriptor=PLAIN, value=1.5, **more):
        """Write a value state."""
        with self.opened(**more) as backend:
            backend.get_partitioned_state(descriptor).update(value)

    def put(self):
        """Write a map whose keys have the plugin's type."""
        descriptor = mp.MapStateDescriptor("shares", tuple[Fraction, int], Fraction)
        with self.opened() as backend:
            backend.get_partitioned_state(descriptor).put((THIRD, 1), THIRD)

    def batch(self):
        """Use a key of the plugin's type in batch execution."""
        with open_batch_backend(key_type=Fraction, config=self.config) as backend:
            backend.set_current_key(THIRD)
            backend.get_partitioned_state(PLAIN).update(1.5)

    def snapshots(self):
        """Take and restore a snapshot and a savepoint; seal and re-key the savepoint."""
        saved = self.folder / "saved"
        with self.opened() as backend:
            backend.get_partitioned_state(PLAIN).update(1.5)
            storage = mp.checkpoint_storage(self.uri, config=self.config)
            handle = backend.snapshot(1, storage).result().handle
            backend.notify_checkpoint_complete(1)
            target = backend.parameters.registry.savepoint(saved)
            backend.strategy("savepoint").save(2, target.storage, target.folder).result()
        for given in (handle, saved):
            with self.opened(restore=[given]) as backend:
                assert backend.get_partitioned_state(PLAIN).value() == 1.5
        again = mp.seal_savepoint(saved, config=self.config)
        mp.rekey_savepoint(again, self.folder / "rekeyed", 64, config=self.config)

    def function(self):
        """Run a function locally and in the harness, with a restore."""
        assert mp.local.run(Count(), [{"k": "a"}], key="k", config=self.config) == ["a"]
        handle = None
        for _ in range(2):
            given = {"key": "k", "config": self.config, "restore": handle}
            with mp.testing.KeyedOperatorHarness(Count(), **given) as harness:
                harness.process({"k": "a"})
                handle = harness.snapshot()

    def operator_state(self):
        """Write a list of the plugin's type."""
        with mp.open_operator_backend(config=self.config) as backend:
            backend.get_list_state(mp.ListStateDescriptor("parts", Fraction)).add(THIRD)

    def tool(self, *words):
        """Run a command."""
        rules = ["--config", str(self.toml)] if self.toml else []
        done = CliRunner().invoke(commands, [*rules, *words], catch_exceptions=False)
        if done.exit_code and "'recorded:y' is neither" in done.output:
            raise mp.errors.ConfigError("checkpoint.dir", done.output)
        assert done.exit_code == 0, done.output

    def tools(self):
        """Return the commands that read state, by name."""
        saved, created = str(self.folder / "saved"), str(self.folder / "created")
        for words in (
            ("state", "list", self.uri, "--count"),
            ("state", "dump", self.uri, "spent"),
            ("state", "get", saved, "spent", "alice"),
            ("checkpoint", "list", self.uri),
            ("checkpoint", "verify", self.uri),
            ("checkpoint", "diff", self.uri, "1", "1"),
            ("savepoint", "show", saved),
            ("savepoint", "seal", saved),
            ("savepoint", "create", self.uri, created, "--snapshots", self.uri),
            ("backends",),
        ):
            self.tool(*words)

    def report(self):
        """Report metrics to the plugin's reporter."""
        reporting = mp.Config({"metrics.reporters": "recorder"})
        get_registry(self.config.plugins).report(reporting, {"rows": 1.0}, {})

    def steps(self):
        """Return the steps by name."""
        saved = str(self.folder / "saved")
        rekey = ("savepoint", "rekey", saved, "recorded:y", "--max-parallelism", "64")
        return {
            "snapshots": self.snapshots,
            "function": self.function,
            "queries": lambda: mp.QueryableStateClient(self.uri, config=self.config).close(),
            "tools": self.tools,
            "storage": lambda: mp.checkpoint_storage("recorded:x", config=self.config),
            "storage of a tool": lambda: self.tool(*rekey),
            "value": lambda: self.update(mp.ValueStateDescriptor("share", Fraction), THIRD),
            "map": self.put,
            "key": lambda: self.update(key_type=Fraction, key=THIRD),
            "batch": self.batch,
            "key group": lambda: mp.assign_to_key_group(THIRD, 128, config=self.config),
            "operator state": self.operator_state,
            "backend": lambda: self.update(backend="recorder"),
            "configured backend": lambda: configured_backend(self.config, "recorder"),
            "reporter": self.report,
        }


OF_THE_PLUGIN = {"storage", "storage of a tool", "value", "map", "key", "batch", "key group",
                 "operator state", "backend", "configured backend", "reporter"}  # fmt: skip


def main(rules):
    """Run all steps, and write the errors by step."""
    folder = Path(tempfile.mkdtemp())
    toml = folder / "millpond.toml" if rules else None
    if toml:
        lines = [f"{key} = {json.dumps(value)}" for key, value in rules.items()]
        toml.write_text("[millpond]\n" + "\n".join(lines))
    refused = {}
    for name, step in Walk(mp.Config(rules), toml, folder).steps().items():
        try:
            step()
        except mp.errors.MillpondError as error:
            refused[name] = type(error).__name__
    sys.stdout.write(json.dumps(refused) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
