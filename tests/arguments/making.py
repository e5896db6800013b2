"""What calls are made on: backends, harnesses, snapshots, savepoints, descriptors."""

from datetime import timedelta
from itertools import count
from pathlib import Path

import millpond as mp

from tests.arguments.calling import kept

NUMBERS = count()


class Total(mp.KeyedProcessFunction):
    """A function with a state and a timer."""

    def open(self, context):
        """Ask for the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", int, default=0))

    def process_element(self, row, context):
        """Add."""
        self.total.update(self.total.value() + 1)
        yield context.current_key

    def on_timer(self, timestamp, context):
        """Tell the time."""
        yield timestamp


class Rules(mp.KeyedBroadcastProcessFunction):
    """A function of keyed and broadcast rows."""

    def process_element(self, row, context):
        """Give the key."""
        yield context.current_key

    def process_broadcast_element(self, row, context):
        """Give the row."""
        yield row


class Pair(mp.KeyedCoProcessFunction):
    """A function of two inputs."""

    def process_element1(self, row, context):
        """Give the key."""
        yield context.current_key

    def process_element2(self, row, context):
        """Give the row."""
        yield row


class Last(mp.AggregateFunction):
    """The last value, whatever it is, as its own accumulator."""

    def create_accumulator(self):
        """Nothing yet."""
        return 0

    def add(self, value, accumulator):
        """Take the value."""
        return value

    def get_result(self, accumulator):
        """Give the value."""
        return accumulator

    def merge(self, a, b):
        """Take the second."""
        return b


def second(_, b):
    """The second of two values."""
    return b


def backend(**more):
    """A heap backend with a current key."""
    opened = kept(mp.open_keyed_backend("heap", key_type=str, clock=mp.ManualClock(0), **more))
    opened.set_current_key("alice")
    return opened


def state(descriptor):
    """A state of a new backend."""
    return backend().get_partitioned_state(descriptor)


def harness(function=Total, **more):
    """An open harness."""
    return kept(mp.testing.KeyedOperatorHarness(function(), key="k", **more)).__enter__()


def handle():
    """A snapshot."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    return opened.snapshot(1, mp.checkpoint_storage("memory:odd")).result().handle


def fresh(name):
    """A path below the working directory that nothing has used."""
    return f"{name}-{next(NUMBERS)}"


def saved():
    """The handle of a savepoint below the working directory."""
    opened = backend()
    opened.get_partitioned_state(mp.ValueStateDescriptor("total", int)).update(1)
    storage = mp.checkpoint_storage(Path(fresh("saved")).absolute().as_uri())
    return opened.savepoint(1, storage).result().handle


def savepoint():
    """Where a savepoint is."""
    made = saved()
    return made.storage.uri + "/" + made.folder


def snapshots():
    """A checkpoint directory below the working directory."""
    opened = backend(place="job")
    descriptor = mp.ValueStateDescriptor("total", int).set_queryable("totals")
    opened.get_partitioned_state(descriptor).update(1)
    uri = Path(fresh("snapshots")).absolute().as_uri()
    opened.snapshot(1, mp.checkpoint_storage(uri)).result()
    return uri


VALUE = mp.ValueStateDescriptor("value", int)
LIST = mp.ListStateDescriptor("list", int)
MAP = mp.MapStateDescriptor("map", str, int)
REDUCING = mp.ReducingStateDescriptor("reducing", second, int)
AGGREGATING = mp.AggregatingStateDescriptor("aggregating", Last(), int)
FOLDING = mp.FoldingStateDescriptor("folding", 0, second, int)
TTL = mp.StateTtlConfig(timedelta(seconds=1))
