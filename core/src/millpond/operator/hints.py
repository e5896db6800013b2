"""What is behind the errors that functions raise most often: a word more, at the sentence's end."""

from __future__ import annotations

from millpond.errors import said
from millpond.errors.functions import SHIP_MODULE
from millpond.functions.functions import Context
from millpond.functions.user_frames import names_read
from millpond.state import State, StateDescriptor

__all__ = ["hint_for"]

_NONE = {
    "timestamp": (
        "context.timestamp is None where no column of event time is named (event_time= of "
        "process, or withWatermark before key_by), and where that column is null"
    ),
    "value": "a value state is None before its first update: give its descriptor a default=",
    "get": "the state's get() is None before anything was added or put: test for it, or "
    "with a map call get(key, default)",
}
"""What an attribute that a line reads may have been, where None is what the line cannot take."""

_OPEN = "get states in open(), as with self.total = context.get_state(descriptor)"


def hint_for(error: BaseException) -> str:
    """Where None has come from, or what an object has instead; empty where nobody can tell."""
    if isinstance(error, AttributeError):
        return _attribute(error)
    if isinstance(error, ModuleNotFoundError):
        return SHIP_MODULE
    if isinstance(error, TypeError) and "None" in said(error):
        names = names_read(error)
        return next((hint for name, hint in _NONE.items() if name in names), "")
    return ""


def _attribute(error: AttributeError) -> str:
    if isinstance(error.obj, StateDescriptor):
        return f"a descriptor describes a state and holds nothing: {_OPEN}"
    if isinstance(error.obj, Context) and str(error.name).endswith("state"):
        return _OPEN
    if isinstance(error.obj, State):
        return f"the state has {', '.join(_methods(error.obj))}"
    return ""


def _methods(state: State) -> list[str]:
    """The public methods that the interfaces of a state have."""
    kinds = [kind for kind in type(state).__mro__ if kind.__module__ == State.__module__]
    return sorted({name for kind in kinds for name in vars(kind) if not name.startswith("_")})
