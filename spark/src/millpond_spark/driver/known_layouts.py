"""What is known of an operator's past while its DataFrame is built.

Where Spark keeps a query's checkpoint is said only when the query is started. But the number of
key groups stands in the plan, and so does whether Spark's state has room for a timeout. What the
uid has left in Millpond's own directory tells both; the start checks it against the query.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Self

import attrs
from millpond.config import Config
from millpond.errors import MillpondError
from millpond.keygroups import default_max_parallelism
from millpond.plugins import PluginRegistry, get_registry
from millpond.savepoints.savepoint_file import read_savepoint

from millpond_spark.plan.layout import Layout, layouts_by_uid
from millpond_spark.plan.retained_checkpoint import RetainedCheckpoint


@attrs.frozen
class Past:
    """The layouts in force of all queries with an operator of one uid, and its savepoint."""

    _layouts: tuple[Layout, ...] = ()
    _saved: int | None = None

    @classmethod
    def of(cls, config: Config, uid: str) -> Self:
        """What the directories of a configuration hold of a uid."""
        if config.checkpoint.dir is None:
            return cls()
        registry = get_registry(config.plugins)
        layouts = layouts_by_uid(registry.storage(config.checkpoint.dir, config), uid)
        saved = None
        restore = config.checkpoint.restore
        if not layouts and restore is not None and not RetainedCheckpoint.named(restore):
            saved = _in_savepoint(registry, config, restore, uid)
        return cls(tuple(layouts), saved)

    @classmethod
    def of_bounded(cls, config: Config, uid: str) -> Self:
        """What the savepoint of a configuration holds of a uid."""
        restore = config.checkpoint.restore
        if restore is None or RetainedCheckpoint.named(restore):
            return cls()
        return cls((), _in_savepoint(get_registry(config.plugins), config, restore, uid))

    def max_parallelism(self, parallelism: int) -> int:
        """The number of key groups if none is configured: the restored one, else Flink's.

        Where queries that share the uid differ, or the parallelism is larger, it is Flink's
        default; the start refuses it if it is another than the query's.
        """
        derived = default_max_parallelism(parallelism)
        stored = {layout.max_parallelism for layout in self._layouts} or {self._saved or derived}
        fitting = [number for number in stored if number >= parallelism]
        return fitting[0] if len(fitting) == 1 else derived

    def timed(self) -> bool:
        """Whether a query may be begun whose state in Spark has room for timeouts.

        An earlier Millpond left none to functions without timers.
        """
        return not self._layouts or any(layout.timed for layout in self._layouts)


def _in_savepoint(registry: PluginRegistry, config: Config, savepoint: str, uid: str) -> int | None:
    """The key groups of an operator in a savepoint; errors are left to the query's start."""
    with suppress(MillpondError):
        for operator in read_savepoint(registry.savepoint(savepoint, config)).operators:
            if operator.uid == uid:
                return operator.max_parallelism
    return None
