"""Functions that fail, each at a line with the comment ``# fails: NAME``."""

from pathlib import Path

import millpond as mp
from millpond.windows import ProcessWindowFunction

OUTPUT = "k string, total bigint"


def mark(name, file=__file__):
    """Return the line of a mark."""
    lines = Path(file).read_text().splitlines()
    (found,) = [at for at, text in enumerate(lines, 1) if text.endswith(f"# fails: {name}")]
    return found


class Passing(mp.KeyedProcessFunction):
    def process_element(self, row, context):
        yield row.k, row.n


class Opening(Passing):
    def open(self, context):
        raise ValueError("no network")  # fails: open


class Processing(Passing):
    def process_element(self, row, context):
        yield row.k, self.share(row)

    def share(self, row):
        return 100 // (row.n - 1)  # fails: process_element


class Caused(Passing):
    def process_element(self, row, context):
        try:
            return [(row.k, {}[row.n])]
        except KeyError as error:
            raise RuntimeError("no such tariff") from error  # fails: caused


class Firing(Passing):
    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp, context):
        raise ValueError("too late")  # fails: on_timer


class Closing(Passing):
    def close(self):
        raise ValueError("gone")  # fails: close


class FailingTwice(Processing):
    """Function that fails in a row, and again in `close`."""

    row = None

    def share(self, row):
        self.row = row
        return super().share(row)

    def close(self):
        if self.row is not None:
            raise ValueError("gone")


class Misspelling(Passing):
    def process_element(self, row, context):
        yield row.customr, row.n  # fails: misspelt


class Mistyping(Passing):
    def process_element(self, row, context):
        yield row.k, "one"  # fails: type


class Widening(Passing):
    def process_element(self, row, context):
        yield row.k, row.n, row.n  # fails: width


class Returning(Passing):
    def process_element(self, row, context):  # fails: returned
        return row.k, row.n


def reduce_badly(left, right):
    return left + right["n"]  # fails: reduce


class Reducing(Passing):
    def open(self, context):
        descriptor = mp.ReducingStateDescriptor("total", reduce_badly, int)
        self.total = context.get_reducing_state(descriptor)

    def process_element(self, row, context):
        self.total.add(row.n)
        self.total.add(row.n)
        yield row.k, self.total.get()


class Storing(Passing):
    def open(self, context):
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))

    def process_element(self, row, context):
        self.total.update("one")  # fails: state type
        yield row.k, 1


class Adding(mp.AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, row, accumulator):
        return accumulator + row["n"].total  # fails: aggregate

    def get_result(self, accumulator):
        return accumulator

    def merge(self, left, right):
        return left + right


class Windows(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, elements[7]  # fails: window


class Broadcasting(mp.KeyedBroadcastProcessFunction):
    def process_broadcast_element(self, row, context):
        raise ValueError("a bad rule")  # fails: broadcast

    def process_element(self, row, context):
        yield row.k, row.n
