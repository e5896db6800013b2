"""Helpers to store state and to find it by path; usable with the core alone."""

import hashlib
import json
import tempfile

import millpond as mp
from millpond.plugins import get_registry

TOTAL = mp.ValueStateDescriptor("total", int)


def locate_savepoint(place):
    """Return the handle of a savepoint or a checkpoint directory."""
    return get_registry().savepoint(place)


def confirmed(storage, groups, checkpoints, *, backend, **given):
    """Take confirmed snapshots of one subtask with 40 keys that all change; return the last handle."""
    with (
        tempfile.TemporaryDirectory() as workplace,
        mp.open_keyed_backend(
            backend, key_type=int, directory=workplace, key_group_range=groups, **given
        ) as opened,
    ):
        state = opened.get_partitioned_state(TOTAL)
        for number in checkpoints:
            for key in range(40):
                if mp.assign_to_key_group(key, 128) in groups:
                    opened.set_current_key(key)
                    state.update(key * 100 + number)
            handle = opened.snapshot(number, storage).result().handle
            opened.notify_checkpoint_complete(number)
    return handle


def reseal(folder, change):
    """Change a savepoint's metadata, and write it with a correct digest."""
    path = folder / "savepoint.json"
    body = json.loads(path.read_text())["savepoint"]
    change(body)
    digest = hashlib.sha256(json.dumps(body, indent=1).encode()).hexdigest()
    path.write_text(json.dumps({"sha256": digest, "savepoint": body}))
