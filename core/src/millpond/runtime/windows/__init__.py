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
from millpond.runtime.windows.builder import Windowing, window
from millpond.runtime.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from millpond.runtime.windows.window import TimeWindow
from millpond.runtime.windows.window_contents import ProcessWindowFunction, WindowContext
from millpond.runtime.windows.window_operator import LateRow, WindowOperator

__all__ = [
    "CountTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindows",
    "LateRow",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeWindow",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowOperator",
    "Windowing",
    "window",
]
