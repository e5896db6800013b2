"""A helper that reads stored state by path, with all installed plugins."""

from millpond.plugins import get_registry
from millpond_cli.inspection import stored_operator

from tests.checkpoint.stored import locate_savepoint


def open_stored(place, checkpoint_id=None):
    """Return the operators of a savepoint or a checkpoint directory."""
    return stored_operator.open_stored(locate_savepoint(place), get_registry(), checkpoint_id)
