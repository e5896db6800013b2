"""A trigger like a user's, for Millpond's windows; ``flink_triggers`` has the same one."""

import operator

import millpond as mp
from millpond import windows
from millpond.windows import TriggerResult


class Wild(windows.Trigger):
    """Trigger that follows the row's number, and leaves unneeded timers behind."""

    total = mp.ReducingStateDescriptor("total", operator.add, int)

    def on_element(self, element, timestamp, window, ctx):
        ctx.get_partitioned_state(self.total).add(element.n)
        end, now = window.max_timestamp(), ctx.get_current_processing_time()
        match element.n % 9:
            case 0:
                return TriggerResult.FIRE
            case 1:
                return TriggerResult.PURGE
            case 2:
                return TriggerResult.FIRE_AND_PURGE
            case 3:
                ctx.register_event_time_timer(timestamp + 5)
                ctx.register_event_time_timer(timestamp + 7)
            case 4:
                ctx.register_processing_time_timer(now + 3)
                ctx.register_processing_time_timer(now + 5)
            case 5:
                ctx.register_processing_time_timer(now - 2)
            case 6:
                ctx.delete_event_time_timer(end)
                ctx.delete_processing_time_timer(end)
            case 7:
                ctx.delete_event_time_timer(timestamp + 4)
                ctx.delete_processing_time_timer(now + 2)
            case 8:
                ctx.register_event_time_timer(end)
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return self.on_time(
            time, window, ctx, ctx.register_event_time_timer, ctx.delete_event_time_timer
        )

    def on_processing_time(self, time, window, ctx):
        return self.on_time(
            time, window, ctx, ctx.register_processing_time_timer, ctx.delete_processing_time_timer
        )

    def on_time(self, time, window, ctx, register, delete):
        total = ctx.get_partitioned_state(self.total)
        total.add(time)
        if time % 3 == 0 and time < window.max_timestamp():
            register(time + 1)
        if time % 2 and time + 2 < window.max_timestamp():
            delete(time + 2)
        return (
            TriggerResult.FIRE,
            TriggerResult.FIRE_AND_PURGE,
            TriggerResult.CONTINUE,
            TriggerResult.FIRE,
            TriggerResult.PURGE,
        )[total.get() % 5]

    def on_merge(self, window, ctx):
        ctx.merge_partitioned_state(self.total)
        ctx.get_partitioned_state(self.total).add(1)

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.total).clear()
