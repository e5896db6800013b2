"""What tests look at stored state with: by path, with all installed plugins."""

from millpond.checkpoint.inspection import inspector
from millpond.plugins import get_registry


def locate_savepoint(place):
    """The handle of a savepoint or a checkpoint directory."""
    return get_registry().savepoint(place)


def open_stored(place, checkpoint_id=None):
    """The operators of a savepoint or a checkpoint directory."""
    return inspector.open_stored(locate_savepoint(place), get_registry(), checkpoint_id)
