"""Flink's triggers, ported for the operator in ``flink_windows``, and one that does everything.

A trigger's context is the operator: ``window``, ``timers``, ``register``, ``delete``,
``trigger_state``.
"""

from tests.windows.flink_windows import (
    CONTINUE,
    EVENT,
    FIRE,
    FIRE_AND_PURGE,
    MAX,
    MIN,
    PROCESSING,
    PURGE,
    remainder,
)


class Trigger:
    def on_time(self, domain, time, context):
        return CONTINUE

    def on_merge(self, parts, context):
        pass

    def clear(self, context):
        pass

    def values(self, context):
        return context.trigger_state.get((context.key, context.window), [])

    def keep(self, context, value):
        context.trigger_state.append(context.key, context.window, value)

    def forget(self, context):
        context.trigger_state.clear_at(context.key, context.window)

    def merge_state(self, parts, context):
        context.trigger_state.merge(context.key, context.window, parts)


class Never(Trigger):
    def on_element(self, row, timestamp, context):
        return CONTINUE


class EventTime(Trigger):
    def on_element(self, row, timestamp, context):
        if context.window.max_timestamp() <= context.timers.watermark:
            return FIRE
        context.register(EVENT, context.window.max_timestamp())
        return CONTINUE

    def on_time(self, domain, time, context):
        return FIRE if (domain, time) == (EVENT, context.window.max_timestamp()) else CONTINUE

    def on_merge(self, parts, context):
        if context.window.max_timestamp() > context.timers.watermark:
            context.register(EVENT, context.window.max_timestamp())

    def clear(self, context):
        context.delete(EVENT, context.window.max_timestamp())


class ProcessingTime(Trigger):
    def on_element(self, row, timestamp, context):
        context.register(PROCESSING, context.window.max_timestamp())
        return CONTINUE

    def on_time(self, domain, time, context):
        return FIRE if domain == PROCESSING else CONTINUE

    def on_merge(self, parts, context):
        if context.window.max_timestamp() > context.timers.now:
            context.register(PROCESSING, context.window.max_timestamp())

    def clear(self, context):
        context.delete(PROCESSING, context.window.max_timestamp())


class Count(Trigger):
    def __init__(self, most):
        self.most = most

    def on_element(self, row, timestamp, context):
        self.keep(context, 1)
        if len(self.values(context)) < self.most:
            return CONTINUE
        self.forget(context)
        return FIRE

    def on_merge(self, parts, context):
        self.merge_state(parts, context)

    def clear(self, context):
        self.forget(context)


class Purging(Trigger):
    def __init__(self, inner):
        self.inner = inner
        self.on_merge, self.clear = inner.on_merge, inner.clear

    def on_element(self, row, timestamp, context):
        result = self.inner.on_element(row, timestamp, context)
        return FIRE_AND_PURGE if result == FIRE else result

    def on_time(self, domain, time, context):
        result = self.inner.on_time(domain, time, context)
        return FIRE_AND_PURGE if result == FIRE else result


class ContinuousEventTime(Trigger):
    def __init__(self, interval):
        self.interval = interval

    def on_element(self, row, timestamp, context):
        end = context.window.max_timestamp()
        if end <= context.timers.watermark:
            return FIRE
        context.register(EVENT, end)
        # For a row without event time, Flink begins at MIN and then fires without end.
        if timestamp != MIN and not self.values(context):
            self.register_next(timestamp - remainder(timestamp, self.interval), context)
        return CONTINUE

    def register_next(self, time, context):
        end = context.window.max_timestamp()
        following = min(time + self.interval, end)
        if end == context.timers.watermark == MAX:
            following = end  # Flink waits for each interval up to the largest time
        self.keep(context, following)
        context.register(EVENT, following)

    def on_time(self, domain, time, context):
        if domain != EVENT:
            return CONTINUE
        if time == context.window.max_timestamp():
            return FIRE
        if min(self.values(context), default=None) != time:
            return CONTINUE
        self.forget(context)
        self.register_next(time, context)
        return FIRE

    def on_merge(self, parts, context):
        self.merge_state(parts, context)
        if self.values(context):
            context.register(EVENT, min(self.values(context)))

    def clear(self, context):
        if self.values(context):
            context.delete(EVENT, min(self.values(context)))
            self.forget(context)


class ContinuousProcessingTime(Trigger):
    def __init__(self, interval):
        self.interval = interval

    def on_element(self, row, timestamp, context):
        now = context.timers.now
        if not self.values(context):
            self.register_next(now - remainder(now, self.interval), context)
        return CONTINUE

    def register_next(self, time, context):
        following = min(time + self.interval, context.window.max_timestamp())
        self.keep(context, following)
        context.register(PROCESSING, following)

    def on_time(self, domain, time, context):
        if domain != PROCESSING:
            return CONTINUE
        if time == context.window.max_timestamp():
            return FIRE
        if min(self.values(context), default=None) != time:
            return CONTINUE
        self.forget(context)
        self.register_next(time, context)
        return FIRE

    def on_merge(self, parts, context):
        self.merge_state(parts, context)
        if self.values(context):
            context.register(PROCESSING, min(self.values(context)))

    def clear(self, context):
        if self.values(context):
            context.delete(PROCESSING, min(self.values(context)))
            self.forget(context)


class Delta(Trigger):
    """``DeltaTrigger`` over the rows' numbers."""

    def __init__(self, threshold, delta):
        self.threshold, self.delta = threshold, delta

    def on_element(self, row, timestamp, context):
        last = self.values(context)
        if not last:
            self.keep(context, row["n"])
            return CONTINUE
        if self.delta(last[0], row["n"]) > self.threshold:
            self.forget(context)
            self.keep(context, row["n"])
            return FIRE
        return CONTINUE

    def clear(self, context):
        self.forget(context)


class ProcessingTimeout(Trigger):
    """``ProcessingTimeoutTrigger``; its own state is next to that of the inner trigger."""

    def __init__(self, inner, timeout, reset, clears):
        self.inner, self.timeout, self.reset, self.clears = inner, timeout, reset, clears

    def place(self, context):
        return context.key, ("timeout", context.window)

    def on_element(self, row, timestamp, context):
        result = self.inner.on_element(row, timestamp, context)
        if result in (FIRE, FIRE_AND_PURGE):
            self.clear(context)
            return result
        state, place = context.trigger_state, self.place(context)
        following = context.timers.now + self.timeout
        waiting = state.get(place)
        if waiting is not None and self.reset:
            context.delete(PROCESSING, waiting)
            del state[place]
            waiting = None
        if waiting is None:
            state[place] = following
            context.register(PROCESSING, following)
        return result

    def on_time(self, domain, time, context):
        result = self.inner.on_time(domain, time, context)
        if self.clears:
            self.clear(context)
        return FIRE_AND_PURGE if result in (PURGE, FIRE_AND_PURGE) else FIRE

    def clear(self, context):
        waiting = context.trigger_state.pop(self.place(context), None)
        if waiting is not None:
            context.delete(PROCESSING, waiting)
        self.inner.clear(context)


class Wild(Trigger):
    """Trigger that follows the row's number, and leaves unneeded timers behind."""

    def on_element(self, row, timestamp, context):
        self.keep(context, row["n"])
        end, now = context.window.max_timestamp(), context.timers.now
        match row["n"] % 9:
            case 0:
                return FIRE
            case 1:
                return PURGE
            case 2:
                return FIRE_AND_PURGE
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
        return CONTINUE

    def on_time(self, domain, time, context):
        self.keep(context, time)
        if time % 3 == 0 and time < context.window.max_timestamp():
            context.register(domain, time + 1)
        if time % 2 and time + 2 < context.window.max_timestamp():
            context.delete(domain, time + 2)
        return (FIRE, FIRE_AND_PURGE, CONTINUE, FIRE, PURGE)[sum(self.values(context)) % 5]

    def on_merge(self, parts, context):
        self.merge_state(parts, context)
        self.keep(context, 1)

    def clear(self, context):
        self.forget(context)
