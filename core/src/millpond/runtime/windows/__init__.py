"""Windows: assigners, triggers, and the operator over namespaces. The model is Flink's."""

from millpond.runtime.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millpond.runtime.windows.builder import Windowing, count_window, window
from millpond.runtime.windows.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    EvictorContext,
    TimeEvictor,
    TimestampedValue,
)
from millpond.runtime.windows.repeating_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    DeltaTrigger,
    ProcessingTimeoutTrigger,
)
from millpond.runtime.windows.trigger_base import (
    OnMergeContext,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from millpond.runtime.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from millpond.runtime.windows.window import TimeWindow
from millpond.runtime.windows.window_contents import ProcessWindowFunction, WindowContext
from millpond.runtime.windows.window_operator import LateRow, WindowOperator

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DeltaEvictor",
    "DeltaTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "EvictorContext",
    "GlobalWindows",
    "LateRow",
    "NeverTrigger",
    "OnMergeContext",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "ProcessingTimeoutTrigger",
    "PurgingTrigger",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimestampedValue",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowOperator",
    "Windowing",
    "count_window",
    "window",
]
