"""Call functions with odd arguments, and judge what happens."""

import millpond as mp
from millpond.arguments import check_type

from tests.arguments import walk

__all__ = ["call", "close_all", "complaint", "consumed", "kept"]

LONGEST = 20_000
TARGETS = {}
"""For each target, the function and a good value for each parameter; filled by ``tests.arguments.targets``."""

OPENED = []


def kept(closeable):
    """Remember an object that is closed after the call."""
    OPENED.append(closeable)
    return closeable


def close_all():
    """Close everything that was opened for a call."""
    while OPENED:
        OPENED.pop().close()


def call(make, method):
    """Return a function that calls a method of a new object."""

    def run(*args, **kwargs):
        return getattr(make(), method)(*args, **kwargs)

    return run


def consumed(make, method):
    """Return the same for a method that returns an iterator."""
    return lambda **kwargs: list(call(make, method)(**kwargs))


def complaint(target, odd):
    """Return what is wrong with a call that has odd values for some parameters, or None.

    An error that is neither a MillpondError nor a TypeError nor a ValueError is raised again.
    """
    function, good = TARGETS[target]
    if takes_functions(target) and int in odd.values():
        return None  # a normal callable that raises an error
    given = {name: make() for name, make in good.items() if name not in odd}
    try:
        function(**given, **odd)
    except mp.errors.MillpondError as error:
        return message_fault(error)
    except (TypeError, ValueError) as error:
        if not any(name in str(error) for name in odd):
            return f"{type(error).__name__} without the parameter's name: {str(error)[:120]}"
    else:
        return wrongly_taken(target, odd)
    finally:
        close_all()
    return None


def takes_functions(target):
    """Return whether a target calls functions of rows that it is given."""
    return target.startswith("run")


def message_fault(error):
    """Return what is wrong with an error's message."""
    text = str(error)
    if not text or len(text) > LONGEST:
        return f"{type(error).__name__} without a message of a sensible length"
    if "MemoryError" in text:
        return f"{type(error).__name__} for want of memory"
    return None


def wrongly_taken(target, odd):
    """Return an odd value that was accepted although the parameter's type does not allow it."""
    hints = walk.hints(walk.callable_of(target))
    for name, value in odd.items():
        if name in hints:
            try:
                check_type(name, value, hints[name])
            except mp.errors.ArgumentTypeError as error:
                return f"it was taken: {error}"
    return None
