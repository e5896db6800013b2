"""``millpond.windows``: window assigners, triggers and functions."""

from millpond.functions import windows as _windows
from millpond.functions.windows import *  # noqa: F403 - exactly what the package lists

__all__ = _windows.__all__
