"""Objects to call methods on: backends, harnesses, snapshots, savepoints, descriptors."""

from datetime import timedelta
from itertools import count
from pathlib import Path

import millpond as mp

from tests.arguments.calling import kept

NUMBERS = count()


class Total(mp.KeyedProcessFunction):
    """Function with a state and a timer."""

    def open(self, context):
        """Get the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int, default=0))

    def process_element(self, row, context):
        """Add the row's number."""
        self.total.update(self.total.value() + 1)
        yield context.current_key

    def on_timer(self, timestamp, context):
        """Yield the timer's time."""
        yield timestamp


class Rules(mp.KeyedBroadcastProcessFunction):
    """Function of keyed and broadcast rows."""

    def process_element(self, row, context):
        """Yield the key."""
        yield context.current_key

    def process_broadcast_element(self, row, context):
        """Yield the row."""
        yield row


class Pair(mp.KeyedCoProcessFunction):
    """Function of two inputs."""

    def process_element1(self, row, context):
        """Yield the key."""
        yield context.current_key

    def process_element2(self, row, context):
        """Yield the row."""
        yield row


class Last(mp.AggregateFunction):
    """Aggregate function that keeps the last value."""

    def create_accumulator(self):
        """Return None."""
        return 0

    def add(self, value, accumulator):
        """Return the new value."""
        return value

    def get_result(self, accumulator):
        """Return the last value."""
        return accumulator

    def merge(self, a, b):
        """Return the second accumulator."""
        return b


def second(_, b):
    """Return the second of two values."""
    return b


def backend(**more):
    """Return a heap backend with a current key."""
    opened = kept(mp.open_keyed_backend("heap", key_type=str, clock=mp.ManualClock(0), **more))
    opened.set_current_key("alice")
    return opened


def state(descriptor):
    """Return a state of a new backend."""
    return backend().get_partitioned_state(descriptor)


def harness(function=Total, **more):
    """Return an open harness."""
    return kept(mp.testing.KeyedOperatorHarness(function(), key="k", **more)).__enter__()


def handle():
    """Return the handle of a snapshot."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    return opened.snapshot(1, mp.checkpoint_storage("memory:odd")).result().handle


def fresh(name):
    """Return an unused path below the working directory."""
    return f"{name}-{next(NUMBERS)}"


def saved():
    """Return the handle of a savepoint below the working directory."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    storage = mp.checkpoint_storage(Path(fresh("saved")).absolute().as_uri())
    return opened.savepoint(1, storage).result().handle


def savepoint():
    """Return the path of a savepoint."""
    made = saved()
    return made.storage.uri + "/" + made.folder


def snapshots():
    """Return a checkpoint directory below the working directory."""
    opened = backend(place="job")
    descriptor = mp.ValueStateDescriptor("total", int).set_queryable("totals")
    opened.get_partitioned_state(descriptor).update(1)
    uri = Path(fresh("snapshots")).absolute().as_uri()
    opened.snapshot(1, mp.checkpoint_storage(uri)).result()
    return uri


VALUE = mp.ValueStateDescriptor("value", int)
LIST = mp.ListStateDescriptor("list", int)
MAP = mp.MapStateDescriptor("map", str, int)
SORTED_MAP = mp.SortedMapStateDescriptor("sorted map", str, int)
REDUCING = mp.ReducingStateDescriptor("reducing", second, int)
AGGREGATING = mp.AggregatingStateDescriptor("aggregating", Last(), int)
FOLDING = mp.FoldingStateDescriptor("folding", 0, second, int)
TTL = mp.StateTtlConfig(timedelta(seconds=1))
