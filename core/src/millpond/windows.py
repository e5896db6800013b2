"""``millpond.windows``: window assigners, triggers and functions."""

from millpond.runtime import windows as _windows
from millpond.runtime.windows import *  # noqa: F403 - exactly what the package lists

__all__ = _windows.__all__
