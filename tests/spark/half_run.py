"""Subtasks as Spark runs them, some of which have no row after a rescale; without Spark."""

import tempfile
from collections import Counter

import attrs
import millpond as mp
from millpond.config import RestoreConfig
from millpond.functions.functions import SubtaskInfo
from millpond.functions.row_conversion import as_row
from millpond.functions.side_outputs import Output
from millpond.operator.operator_class import operator_class_for
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond_spark.driver.savepoints import committed_handles
from millpond_spark.plan.layout import Layout
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker.committed_state import committed_state

KEYS = [f"k{number}" for number in range(60)]
QUERY = OperatorId("query", "keeping")


class Keeping(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function with every kind of operator state, next to keyed state.

    Each row is counted in keyed state, in raw keyed state and in the split list. The union list has
    the subtask's last row; rules are a broadcast map.
    """

    def initialize_state(self, context):
        store = context.operator_state_store
        self.split = store.get_list_state(mp.ListStateDescriptor("split", str))
        self.union = store.get_union_list_state(mp.ListStateDescriptor("union", str))
        self.rules = store.get_broadcast_state(mp.MapStateDescriptor("rules", str, int))
        self.heard = self.union.get()
        self.by_group = Counter({g: int(n) for g, n in context.raw_keyed_inputs()})

    def open(self, context):
        self.seen = context.get_state(mp.ValueStateDescriptor("seen", int, default=0))
        self.index = context.get_index_of_this_subtask()

    def process_element(self, row, context):
        self.seen.update(self.seen.value() + 1)
        self.split.add(row.k)
        self.by_group[mp.assign_to_key_group(row.k, 128)] += 1
        self.rules.put("all", 1)

    def snapshot_state(self, context):
        self.union.update([f"{context.checkpoint_id}-{self.index}"])
        for group, count in self.by_group.items():
            context.raw_keyed_output.start_new_key_group(group)
            context.raw_keyed_output.write(b"%d" % count)


class HalfRun:
    """A query with its pointers, and the number of rows of each key."""

    def __init__(self, plan, storage, parallelism, made=Keeping):
        self.plan = plan
        self.made = made
        self.storage = storage
        self.layout = Layout(0, parallelism, 128)
        self.pointers = {}
        self.batch = 0
        self.truth = Counter()

    def run(self, *indices):
        """Run a batch in which some subtasks get one row of each of their keys; return the functions."""
        self.batch += 1
        return [self._subtask(index, process=True) for index in indices]

    def look(self):
        """Return the functions of all subtasks, restored but not committed."""
        return [self._subtask(index, process=False) for index in range(self.layout.parallelism)]

    def handles(self, limits=RestoreConfig()):
        """Return the committed handles."""
        return committed_handles(list(self.pointers.values()), self.layout, self.storage, limits)

    def rescale(self, parallelism):
        """Start again with another number of subtasks."""
        sources = tuple(
            KeyedStateHandle.from_json(handle.to_json(), self.storage) for handle in self.handles()
        )
        number = self.layout.number + 1
        self.layout = attrs.evolve(
            self.layout,
            number=number,
            parallelism=parallelism,
            sources=sources,
            settled_after=self.batch - 1,
        )

    def _subtask(self, index, *, process):
        layout, function = self.layout, self.made()
        groups = layout.key_groups(index)
        found = self.pointers.get(index)
        found = found if found and found.layout == layout.number else None
        committed = committed_state(self.plan, layout, index, found)
        info = SubtaskInfo(QUERY.uid, index, layout.parallelism, 128)
        own = [committed.handle] if committed.handle else committed.sources
        with (
            tempfile.TemporaryDirectory() as directory,
            mp.open_keyed_backend(
                "heap", key_type=str, key_group_range=groups, directory=directory,
                restore=own, place=str(QUERY),
            ) as backend,
            mp.open_operator_backend(
                restore=committed.operator_state(info, RestoreConfig())
            ) as state,
        ):  # fmt: skip
            operator = operator_class_for(function)(
                function, backend, info, state, is_restored=bool(own)
            )
            with operator.opened():
                function.held = list(function.split.get())
                function.told = dict(function.rules.items())
                function.raw = dict(function.by_group)
                if process:
                    for key in KEYS:
                        if mp.assign_to_key_group(key, 128) in groups:
                            self.truth[key] += 1
                            operator.process(key, as_row({"k": key}), None, Output())
                    operator.prepare_snapshot(self.batch)
                    handle = backend.snapshot(self.batch, self.storage).result().handle
                    self.pointers[index] = Pointer(
                        QUERY.uid, handle.version, self.batch, groups.start, groups.end,
                        handle.to_json(), "{}", layout.number,
                    )  # fmt: skip
        return function
