"""Generated histories of a query over Spark Connect: runs, failures and rescales, some at wrong times.

Some runs are in a classic session, whose listener writes layouts at the start.
"""

import random
from collections import Counter
from types import SimpleNamespace

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond_spark.driver.offline_rescaling import prepared_layout
from millpond_spark.driver.query_start import QueryStart
from millpond_spark.plan.batch_identity import BatchIdentity
from millpond_spark.plan.layout import write_layout
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker import committed_state as module
from millpond_spark.worker.committed_state import (
    committed_state,
    layout_in_force,
    own_pointer,
)
from pyspark.sql.types import StructType

from tests.operator_plans import plan_of
from tests.spark.streaming import Running

GROUPS = 8
QUERY = OperatorId("query", "running")


class History:
    """A query as Spark runs it: committed pointers, and the expected state.

    The state of a key group is its number of rows. Snapshots are kept by version.
    """

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        config = mp.Config({"checkpoint.dir": folder.as_uri()})
        schema = StructType().add("k", "string")
        plan = plan_of("running", Running(), schema, config, "heap")
        self.plan = attrs.evolve(plan, max_parallelism=GROUPS, settles=True)
        self.storage = self.plan.storage()
        self.pointers, self.states, self.truth = {}, {}, Counter()
        self.batch, self.run = -1, None
        self.begun = Counter()

    def start(self):
        """Start a run with some parallelism and new workers."""
        remote = self.random.random() < 0.7
        self.begun["run"] += 1
        self.run = None
        parallelism = self.random.randint(1, 3)
        self.plan = attrs.evolve(self.plan, parallelism=parallelism, settles=remote)
        if not remote:
            self.begun["classic"] += 1
            begins = QueryStart(None, None, QUERY.query, [self.plan])
            begins.__dict__ |= {
                "_skipped_batch": None,
                "_now": self.batch,
                "_pointers": list(self.pointers.values()),
            }
            begins.write_layouts()
        self.run = f"run-{self.begun['run']}"
        self.workers = [SimpleNamespace(layouts={}) for _ in range(3)]

    def rescale(self):
        """Rescale, whether the query is stopped or not."""
        parallelism = self.random.randint(1, 3)
        mine = list(self.pointers.values())
        layout = prepared_layout(
            self.storage, QUERY, mine, parallelism, self.batch, RestoreConfig()
        )
        write_layout(self.storage, QUERY, layout)

    def micro_batch(self, patch):
        """Run some subtasks, each in some worker; commit all of them or none."""
        if self.run is None:
            self.start()
        batch, pointers, truth = self.batch + 1, dict(self.pointers), Counter(self.truth)
        for index in range(self.plan.parallelism):
            if self.random.random() < 0.7:
                worker = self.random.choice(self.workers)
                patch.setattr(module, "_layouts", worker.layouts)
                pointers[index] = self.task(index, batch, truth)
        if self.random.random() < 0.8:
            self.batch, self.pointers, self.truth = batch, pointers, truth
        else:
            self.run = None

    def task(self, index, batch, truth):
        """Run one subtask, and check that it restores the committed state."""
        plan, found = self.plan, self.pointers.get(index)
        layout = layout_in_force(plan, BatchIdentity(QUERY.query, self.run, batch), found)
        pointer = own_pointer(plan, QUERY.query, layout, found)
        committed = committed_state(plan, layout, index, pointer)
        groups = plan.key_groups(index)
        handles = [committed.handle] if committed.handle else committed.sources
        state = Counter()
        for handle in handles:
            mine = self.states[handle.version]
            state.update({group: mine[group] for group in handle.key_group_range})
        assert {g: state[g] for g in groups} == {g: self.truth[g] for g in groups}
        for group in groups:
            if self.random.random() < 0.5:
                state[group] += 1
                truth[group] += 1
        version = f"v{len(self.states)}"
        self.states[version] = state
        key = plan.key_codec().snapshot()
        handle = KeyedStateHandle(batch + 1, version, groups, GROUPS, key, (), ())
        return Pointer(
            plan.uid, version, batch + 1, groups.start, groups.end, handle.to_json(), "{}",
            layout.number,
        )  # fmt: skip

    def step(self, patch):
        """Do one random step; a refusal ends the run."""
        chance = self.random.random()
        try:
            if chance < 0.15:
                self.start()
            elif chance < 0.35 and self.batch >= 0:
                self.rescale()
            else:
                self.micro_batch(patch)
                self.begun["batch"] += 1
        except errors.RestoreError as error:
            self.begun[type(error).__name__] += 1
            self.run = None


def histories(folder, monkeypatch, seeds):
    """Run many histories; return how often each step has happened."""
    total = Counter()
    for seed in seeds:
        history = History(folder / str(seed), seed)
        for _ in range(40):
            history.step(monkeypatch)
        total += history.begun
    return total


def test_state_is_what_was_committed(tmp_path, monkeypatch):
    """In each history, a start is refused or has exactly the committed state."""
    total = histories(tmp_path, monkeypatch, range(60))
    assert total["batch"] > 300
    assert total["classic"] > 60
    assert total["UnsettledStartError"] > 60


@pytest.mark.soak
def test_many_histories(tmp_path, monkeypatch):
    """In many more histories, a start is refused or has exactly the committed state."""
    histories(tmp_path, monkeypatch, range(1000, 6000))
