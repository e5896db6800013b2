"""Targets: opening, storages, savepoints, key groups, configuration, clocks, handles, queries."""

from datetime import timedelta
from functools import cache
from pathlib import Path

import millpond as mp
from millpond.config import RestoreConfig

from tests.arguments.calling import call, kept
from tests.arguments.making import fresh, handle, saved, savepoint, snapshots

__all__ = ["TARGETS"]

STORAGE = {"storage": lambda: mp.checkpoint_storage("memory:")}
IDENTIFIER = {"checkpoint_id": lambda: 1}


def client():
    """Return a client of queryable state."""
    return kept(mp.QueryableStateClient(snapshots()))


@cache
def savepoint_in(folder):
    """Return a savepoint that all writers of a process start from."""
    return savepoint()


def writer():
    """Return a writer with the content of a savepoint."""
    return mp.SavepointWriter.from_existing(savepoint_in(Path.cwd()))


class Filled(mp.KeyedStateBootstrapFunction):
    """Bootstrap function that fills no state."""

    def process_element(self, row, context):
        """Do nothing."""


def toml():
    """Write a configuration file."""
    path = Path(fresh("job.toml"))
    path.write_text('[millpond]\nstate.backend = "heap"\n')
    return path


def storage_handle():
    """Return the JSON of an operator state's handle."""
    with mp.open_operator_backend() as opened:
        opened.get_list_state(mp.ListStateDescriptor("offsets", float)).add(1.5)
        return opened.snapshot(1, mp.checkpoint_storage("memory:")).result().handle.to_json()


# Each called function, with a good value for each parameter.
TARGETS = {
    "open_keyed_backend": (
        lambda **given: mp.open_keyed_backend(**given).close(),
        {"backend": lambda: "heap", "key_type": lambda: str, "max_parallelism": lambda: 128,
         "key_group_range": lambda: mp.KeyGroupRange(0, 1), "directory": lambda: fresh("state"),
         "clock": lambda: mp.ManualClock(0), "config": mp.Config, "restore": list,
         "place": lambda: "job"},
    ),
    "open_operator_backend": (
        mp.open_operator_backend, {"restore": list, "place": lambda: "job", "config": mp.Config},
    ),
    "checkpoint_storage": (mp.checkpoint_storage, {"uri": lambda: "memory:x", "config": mp.Config}),
    "seal_savepoint": (
        mp.seal_savepoint, {"path": savepoint, "added": lambda: False, "config": mp.Config},
    ),
    "rekey_savepoint": (
        mp.rekey_savepoint,
        {"source": savepoint, "target": lambda: fresh("rekeyed"), "max_parallelism": lambda: 64,
         "config": mp.Config},
    ),
    "SavepointWriter.new_savepoint": (
        mp.SavepointWriter.new_savepoint, {"max_parallelism": lambda: 64, "config": mp.Config},
    ),
    "SavepointWriter.from_existing": (
        mp.SavepointWriter.from_existing,
        {"path": savepoint, "max_parallelism": lambda: 64, "config": mp.Config},
    ),
    "SavepointWriter.with_operator": (
        lambda states, **given: writer().with_operator(given.pop("uid"), given.pop("rows"),
                                                       states, **given),
        {"uid": lambda: "new", "rows": list, "states": lambda: mp.ValueStateDescriptor("n", int),
         "key": lambda: "k", "key_type": lambda: str},
    ),
    "SavepointWriter.with_operator [function]": (
        lambda function: writer().with_operator("new", [], key="k", function=function),
        {"function": Filled},
    ),
    "SavepointWriter.remove_operator": (
        call(writer, "remove_operator"), {"uid": lambda: "job"},
    ),
    "SavepointWriter.rename_operator": (
        call(writer, "rename_operator"), {"uid": lambda: "job", "new_uid": lambda: "new"},
    ),
    "SavepointWriter.remove_state": (
        call(writer, "remove_state"),
        {"uid": lambda: "job", "name": lambda: "total", "scope": lambda: "keyed"},
    ),
    "SavepointWriter.rename_state": (
        call(writer, "rename_state"),
        {"uid": lambda: "job", "name": lambda: "total", "new_name": lambda: "sum",
         "scope": lambda: "keyed"},
    ),
    "SavepointWriter.write": (call(writer, "write"), {"path": lambda: fresh("written")}),
    "assign_to_key_group": (
        mp.assign_to_key_group,
        {"key": lambda: "a", "max_parallelism": lambda: 128, "key_type": lambda: str,
         "config": mp.Config},
    ),
    "default_max_parallelism": (mp.default_max_parallelism, {"parallelism": lambda: 4}),
    "key_group_range": (
        mp.key_group_range,
        {"max_parallelism": lambda: 128, "parallelism": lambda: 4, "index": lambda: 1},
    ),
    "KeyGroupRange": (mp.KeyGroupRange, {"start": lambda: 0, "end": lambda: 1}),
    "KeyGroupRange.intersection": (
        call(lambda: mp.KeyGroupRange(0, 1), "intersection"),
        {"other": lambda: mp.KeyGroupRange(1, 2)},
    ),
    "redistribute_operator_state": (
        mp.redistribute_operator_state,
        {"handles_by_subtask": lambda: [None], "new_parallelism": lambda: 2},
    ),
    "Config": (
        lambda place, options, hadoop: mp.Config(
            options, place=place, hadoop=hadoop),
        {"options": dict, "place": lambda: "here",
         "hadoop": dict},
    ),
    "Config [sections]": (
        mp.Config,
        {"parallelism": lambda: 2, "max_parallelism": lambda: 128, "state": dict, "plugins": dict,
         "backend": dict, "checkpoint": dict, "restore": dict, "serialization": dict,
         "buffer": dict, "metrics": dict, "parameters": dict, "local": dict},
    ),
    "Config.from_toml": (mp.Config.from_toml, {"path": toml}),
    "Config.from_spark_conf": (mp.Config.from_spark_conf, {"items": list}),
    "Config.backend_options": (call(mp.Config, "backend_options"), {"name": lambda: "heap"}),
    "ManualClock": (mp.ManualClock, {"now_ms": lambda: 0}),
    "ManualClock.advance": (call(mp.ManualClock, "advance"), {"ms": lambda: 1}),
    "ManualClock.set": (call(mp.ManualClock, "set"), {"ms": lambda: 1}),
    "QueryableStateClient": (
        lambda **given: mp.QueryableStateClient(**given).close(),
        {"snapshots": snapshots, "operator": lambda: "job", "backend": lambda: "heap",
         "directory": lambda: fresh("replica"), "refresh_after_ms": lambda: 1, "config": mp.Config,
         "checkpoint": lambda: None},
    ),
    "QueryableStateClient.get": (
        call(client, "get"),
        {"query_name": lambda: "totals", "key": lambda: "alice",
         "namespace": lambda: mp.VOID_NAMESPACE},
    ),
    "KeyedStateHandle.from_json": (
        mp.KeyedStateHandle.from_json, {"text": lambda: handle().to_json(), **STORAGE},
    ),
    "KeyedStateHandle.intersection": (
        call(handle, "intersection"), {"groups": lambda: mp.KeyGroupRange(0, 1)},
    ),
    "KeyedStateHandle.files_after": (call(handle, "files_after"), {"version": lambda: "v"}),
    "OperatorStateHandle.from_json": (
        mp.OperatorStateHandle.from_json, {"text": storage_handle, **STORAGE},
    ),
    "SavepointHandle": (
        mp.SavepointHandle,
        {**IDENTIFIER, "folder": lambda: "saved", **STORAGE, "format": lambda: "savepoint",
         "limits": RestoreConfig},
    ),
    "SavepointHandle.path": (call(saved, "path"), {"name": lambda: "metadata.json"}),
    "StateTtlConfig": (
        mp.StateTtlConfig,
        {"ttl": lambda: timedelta(1), "update_type": lambda: mp.UpdateType.ON_READ_AND_WRITE,
         "visibility": lambda: mp.StateVisibility.NEVER_RETURN_EXPIRED,
         "cleanup": mp.CleanupStrategies, "time": lambda: mp.TtlTime.EVENT_TIME},
    ),
    "StateTtlConfig.new_builder": (mp.StateTtlConfig.new_builder, {"ttl": lambda: timedelta(1)}),
    **{
        f"StateTtlConfigBuilder.{method}": (
            call(lambda: mp.StateTtlConfig.new_builder(timedelta(1)), method), arguments,
        )
        for method, arguments in {
            "set_ttl": {"ttl": lambda: timedelta(1)},
            "set_update_type": {"update_type": lambda: mp.UpdateType.ON_READ_AND_WRITE},
            "set_state_visibility": {
                "visibility": lambda: mp.StateVisibility.NEVER_RETURN_EXPIRED,
            },
            "set_ttl_time_characteristic": {
                "ttl_time_characteristic": lambda: mp.TtlTime.PROCESSING_TIME,
            },
            "cleanup_incrementally": {
                "cleanup_size": lambda: 5, "run_cleanup_for_every_record": lambda: False,
            },
            "cleanup_in_rocksdb_compact_filter": {
                "query_time_after_num_entries": lambda: 5,
                "periodic_compaction_time": lambda: timedelta(1),
            },
        }.items()
    },
    "CleanupStrategies": (
        mp.CleanupStrategies, {"in_background": lambda: True, "incremental_size": lambda: 5},
    ),
    "renamed_from": (mp.renamed_from, {"old_name": lambda: "sum"}),
}  # fmt: skip
