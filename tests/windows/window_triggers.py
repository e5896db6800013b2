"""Triggers that users could write, for Millpond's windows; ``flink_triggers`` has their twins."""

import operator

import attrs
import millpond as mp
from millpond import windows
from millpond.windows import TriggerResult

EVENT, PROCESSING = mp.TimeDomain.EVENT_TIME, mp.TimeDomain.PROCESSING_TIME


@attrs.frozen
class Continuous(windows.Trigger):
    """Flink's continuous triggers: fires every interval of a time, up to the window's end."""

    interval: int
    domain: mp.TimeDomain
    next_time = mp.ReducingStateDescriptor("next-time", min, int)

    def on_element(self, element, timestamp, context):
        if self.domain is EVENT:
            end = context.window.max_timestamp()
            if end <= context.current_watermark():
                return TriggerResult.FIRE
            context.register(EVENT, end)
        else:
            timestamp = context.current_processing_time()
        if context.state(self.next_time).get() is None:
            self.register_next(timestamp - timestamp % self.interval, context)
        return TriggerResult.CONTINUE

    def register_next(self, time, context):
        following = min(time + self.interval, context.window.max_timestamp())
        context.state(self.next_time).add(following)
        context.register(self.domain, following)

    def on_time(self, domain, timestamp, context):
        if domain is not self.domain:
            return TriggerResult.CONTINUE
        if domain is EVENT and timestamp == context.window.max_timestamp():
            return TriggerResult.FIRE
        state = context.state(self.next_time)
        if state.get() != timestamp:
            return TriggerResult.CONTINUE
        state.clear()
        self.register_next(timestamp, context)
        return TriggerResult.FIRE

    def on_merge(self, merged, context):
        context.state(self.next_time).merge_namespaces(context.window, merged)
        following = context.state(self.next_time).get()
        if following is not None:
            context.register(self.domain, following)

    def clear(self, context):
        state = context.state(self.next_time)
        if state.get() is not None:
            context.delete(self.domain, state.get())
            state.clear()


class Wild(windows.Trigger):
    """Does what the row's number says; leaves timers behind that nobody wants any more."""

    total = mp.ReducingStateDescriptor("total", operator.add, int)

    def on_element(self, element, timestamp, context):
        context.state(self.total).add(element.n)
        end, now = context.window.max_timestamp(), context.current_processing_time()
        match element.n % 9:
            case 0:
                return TriggerResult.FIRE
            case 1:
                return TriggerResult.PURGE
            case 2:
                return TriggerResult.FIRE_AND_PURGE
            case 3:
                context.register(EVENT, timestamp + 5)
                context.register(EVENT, timestamp + 7)
            case 4:
                context.register(PROCESSING, now + 3)
                context.register(PROCESSING, now + 5)
            case 5:
                context.register(PROCESSING, now - 2)
            case 6:
                context.delete(EVENT, end)
                context.delete(PROCESSING, end)
            case 7:
                context.delete(EVENT, timestamp + 4)
                context.delete(PROCESSING, now + 2)
            case 8:
                context.register(EVENT, end)
        return TriggerResult.CONTINUE

    def on_time(self, domain, timestamp, context):
        total = context.state(self.total)
        total.add(timestamp)
        if timestamp % 3 == 0 and timestamp < context.window.max_timestamp():
            context.register(domain, timestamp + 1)
        if timestamp % 2 and timestamp + 2 < context.window.max_timestamp():
            context.delete(domain, timestamp + 2)
        return (
            TriggerResult.FIRE,
            TriggerResult.FIRE_AND_PURGE,
            TriggerResult.CONTINUE,
            TriggerResult.FIRE,
            TriggerResult.PURGE,
        )[total.get() % 5]

    def on_merge(self, merged, context):
        context.state(self.total).merge_namespaces(context.window, merged)
        context.state(self.total).add(len(merged))

    def clear(self, context):
        context.state(self.total).clear()
