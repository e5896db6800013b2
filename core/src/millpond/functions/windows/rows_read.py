"""Whether windows look at whole rows: columns that nobody reads need not come to them."""

from __future__ import annotations

from millpond.functions.windows.assigners import WindowAssigner
from millpond.functions.windows.own_results import is_ours
from millpond.functions.windows.repeating_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    ProcessingTimeoutTrigger,
)
from millpond.functions.windows.trigger_base import Trigger
from millpond.functions.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)

__all__ = ["look_at_rows"]

_BY_TIME_OR_NUMBER = (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    CountTrigger,
    NeverTrigger,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)


def look_at_rows(assigner: WindowAssigner, trigger: Trigger) -> bool:
    """Whether an assigner or a trigger may see more of a row than that it has come, and when.

    What users derive from Millpond's own may.
    """
    while type(trigger) in (PurgingTrigger, ProcessingTimeoutTrigger):
        trigger = trigger.inner  # type: ignore[attr-defined]  # both are around another one
    gap = getattr(assigner, "gap", None)
    return callable(gap) or not is_ours(assigner) or type(trigger) not in _BY_TIME_OR_NUMBER
