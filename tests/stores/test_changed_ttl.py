"""A rescale and a savepoint after a change of TTL that some subtasks have not applied yet."""

from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint

WHOLE = mp.KeyGroupRange(0, 127)
HALVES = [mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)]
KEYS = range(40)
WAYS = [
    ("heap", "full"),
    ("heap", "changelog"),
    ("lmdb", "changelog"),
    ("rocksdb", "changelog"),
    ("rocksdb", "incremental"),
]


def states(backend, ttl_ms, kind=int):
    """Return a value, a list and a map, with a TTL or without one."""
    made = [
        mp.ValueStateDescriptor("value", kind),
        mp.ListStateDescriptor("list", kind),
        mp.MapStateDescriptor("map", int, kind),
    ]
    for each in made if ttl_ms else ():
        each.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=ttl_ms)))
    return [backend.get_partitioned_state(each) for each in made]


class Job:
    """Subtasks whose snapshots go to one directory."""

    def __init__(self, folder, backend, strategy):
        self.folder, self.backend, self.count = folder, backend, 0
        self.config = mp.Config({"state.snapshot.strategy": strategy})
        self.storage = mp.checkpoint_storage((folder / "snapshots").as_uri())

    def opened(self, now, restore=(), groups=WHOLE, place=""):
        self.count += 1
        return mp.open_keyed_backend(
            self.backend,
            key_type=int,
            directory=self.folder / str(self.count),
            clock=mp.ManualClock(now),
            restore=list(restore),
            key_group_range=groups,
            config=self.config,
            place=place,
        )

    def filled(self, groups, ttl_ms):
        """Return a subtask's second snapshot, which appends to the lists."""
        with self.opened(0, groups=groups) as backend:
            value, elements, entries = states(backend, ttl_ms)
            for number in (1, 2):
                for key in KEYS:
                    if mp.assign_to_key_group(key, 128, int) in groups:
                        backend.set_current_key(key)
                        value.update(number)
                        elements.add(number)
                        entries[number] = number
                handle = backend.snapshot(number, self.storage).result().handle
                backend.notify_checkpoint_complete(number)
            return handle

    def halves(self, before, after):
        """Return the snapshots of two subtasks, one of which has run since the TTL changed."""
        idle, other = (self.filled(groups, before) for groups in HALVES)
        with self.opened(10, [other], HALVES[1]) as backend:
            states(backend, after)
            return [idle, backend.snapshot(3, self.storage).result().handle]

    def found(self, now, restored, ttl_ms, later, place=""):
        """Return the number of entries of each half, some time after the restore."""
        with self.opened(now, restored, place=place) as backend:
            value, elements, entries = states(backend, ttl_ms)
            backend.parameters.clock.set(later)
            found = {0: set(), 1: set()}
            for key in KEYS:
                backend.set_current_key(key)
                half = mp.assign_to_key_group(key, 128, int) // 64
                what = (value.value(), tuple(elements.get()), tuple(sorted(entries.items())))
                found[half].add(what)
            return [found[0], found[1]]


ALL = [{(2, (1, 2), ((1, 1), (2, 2)))}]
NONE = [{(None, (), ())}]


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_rescale_joins_both_kinds_of_rows(tmp_path, backend, strategy, newest_first):
    """Entries without a time stamp get that of the restore; if TTL is removed, expired entries are gone."""
    job = Job(tmp_path, backend, strategy)
    for before, after, now, later, expected in (
        (None, 1000, 100, 1009, ALL + ALL),
        (None, 1000, 100, 1050, ALL + NONE),
        (None, 1000, 100, 1100, NONE + NONE),
        (1000, None, 100, 9999, ALL + ALL),
        (1000, None, 2000, 9999, NONE + ALL),
        (1000, 5000, 100, 4999, ALL + ALL),
        (5000, 1000, 100, 999, ALL + ALL),
        (5000, 1000, 100, 1000, NONE + NONE),
    ):
        halves = sorted(
            job.halves(before, after), key=lambda each: each.checkpoint_id, reverse=newest_first
        )
        assert job.found(now, halves, after, later) == expected


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_a_savepoint_joins_them_too(tmp_path, backend, strategy):
    """A savepoint taken while one subtask is idle has the entries of both."""
    job = Job(tmp_path, backend, strategy)
    for number, (before, after) in enumerate(((None, 1000), (1000, None), (1000, 5000))):
        target = get_registry().savepoint(tmp_path / f"saved-{number}")
        collect_savepoint({"op": job.halves(before, after)}, target, get_registry())
        joined = (
            ALL + ALL if after else NONE + ALL
        )  # all entries of the idle half had expired long before
        assert job.found(20, [target], after, 999, place="op") == joined


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_a_list_that_has_expired_leaves_no_empty_one(tmp_path, backend, strategy):
    """If TTL was removed, keys whose list elements had all expired are gone."""
    job = Job(tmp_path, backend, strategy)
    kept = [key for key in KEYS if mp.assign_to_key_group(key, 128, int) in HALVES[1]]
    with job.opened(2000, job.halves(1000, None)) as opened:
        states(opened, None)
        assert sorted(opened.keys("list")) == kept
        handle = opened.snapshot(9, job.storage).result().handle
    target = get_registry().savepoint(tmp_path / "saved")
    collect_savepoint({"op": [handle]}, target, get_registry())
    with job.opened(2000, [target], place="op") as opened:
        assert sorted(opened.keys("list")) == kept


def test_what_is_joined_is_snapshotted_as_one(tmp_path):
    """After the rescale all entries have a time stamp, also in later snapshots."""
    job = Job(tmp_path, "rocksdb", "incremental")
    with job.opened(100, job.halves(None, 1000)) as backend:
        handle = backend.snapshot(4, job.storage).result().handle
    assert job.found(100, [handle], 1000, 1050) == ALL + NONE


def test_another_type_is_told_with_what_to_do(tmp_path):
    """If a state's type has changed too, the two halves cannot be combined; the error gives a cure."""
    job = Job(tmp_path, "heap", "changelog")
    idle, other = (job.filled(groups, None) for groups in HALVES)
    with job.opened(10, [other], HALVES[1]) as backend:
        states(backend, 1000, float)
        other = backend.snapshot(3, job.storage).result().handle
    said = "state 'list' has type list of float in one snapshot and list of int in another"
    with pytest.raises(errors.RestoreError, match=f"{said}.* by a row for each"):
        job.opened(100, [idle, other])
    target = get_registry().savepoint(tmp_path / "saved")
    with pytest.raises(errors.RestoreError, match=said):
        collect_savepoint({"op": [idle, other]}, target, get_registry())
    assert not (tmp_path / "saved").exists() or not list((tmp_path / "saved").iterdir())
