"""``millpond.keyed``: short forms of keyed functions, for ``mp.local.run`` and the harness.

On Spark they are methods of ``key_by(…)``.
"""

from millpond.functions import short_forms as _short_forms
from millpond.functions.short_forms import *  # noqa: F403 - exactly what the module lists

__all__ = _short_forms.__all__
