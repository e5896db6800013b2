"""Queryable state: look-ups by key in the last committed version, during a running query."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by

from tests.spark.streaming import run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


@attrs.frozen
class Profile:
    """A class whose instances are values."""

    name: str
    visits: int


@pytest.fixture
def job(tmp_path):
    """A backend that takes snapshots, and a function that writes values."""
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())

    class Job:
        snapshots = tmp_path / "snapshots"
        number = 0

        def __init__(self, backend="heap", **options):
            self.opened = mp.open_keyed_backend(
                backend, key_type=str, directory=tmp_path / "job", place="q/job", **options
            )

        def commit(self):
            self.number += 1
            self.opened.snapshot(self.number, storage).result()
            self.opened.notify_checkpoint_complete(self.number)

        def state(self, descriptor, key, **options):
            self.opened.set_current_key(key)
            return self.opened.get_partitioned_state(descriptor, **options)

    jobs = []

    def make(*arguments, **options):
        jobs.append(Job(*arguments, **options))
        return jobs[-1]

    yield make
    for each in jobs:
        each.opened.close()


PROFILE = mp.ValueStateDescriptor("profile", Profile).set_queryable("profiles")


@BACKENDS
def test_a_client_sees_what_is_committed(job, backend):
    """A client sees committed values only; a refresh shows the next version of all states."""
    job = job()
    count = mp.ReducingStateDescriptor("count", int.__add__, int).set_queryable("counts")
    job.state(PROFILE, "ann").update(Profile("Ann", 1))
    job.state(count, "ann").add(1)
    job.commit()
    with mp.QueryableStateClient(job.snapshots, backend=backend, refresh_after_ms=10**9) as client:
        assert client.names() == ["counts", "profiles"]
        job.state(PROFILE, "ann").update(Profile("Ann", 2))
        job.state(count, "ann").add(1)
        job.opened.flush(None)
        assert client.refresh() == 1
        assert client.get("profiles", "ann") == {"name": "Ann", "visits": 1}
        job.commit()
        assert client.get("counts", "ann") == 1
        assert client.refresh() == 2
        assert client.get("profiles", "ann") == {"name": "Ann", "visits": 2}
        assert client.get("counts", "ann") == 2
        assert client.get("profiles", "bob") is None


@BACKENDS
def test_every_kind_of_state_can_be_queried(job, backend):
    """A map is returned as a dictionary, a list as a list, an aggregating state as its accumulator."""
    job = job()
    cases = [
        (mp.ListStateDescriptor("l", int), lambda s: s.add_all([1, 2]), [1, 2], []),
        (mp.MapStateDescriptor("m", str, int), lambda s: s.put("a", 1), {"a": 1}, {}),
        (mp.FoldingStateDescriptor("f", 0, int.__add__, int), lambda s: s.add(4), 4, None),
        (
            mp.AggregatingStateDescriptor("a", Mean(), tuple[int, int]),
            lambda s: s.add(4),
            (4, 1),
            None,
        ),
        (mp.ValueStateDescriptor("v", int), lambda s: s.update(1 << 80), str(1 << 80), None),
    ]
    for descriptor, write, _, _ in cases:
        write(job.state(descriptor.set_queryable(f"q-{descriptor.name}"), "k"))
    job.commit()
    with mp.QueryableStateClient(job.snapshots, backend=backend) as client:
        for descriptor, _, expected, empty in cases:
            found = client.get(f"q-{descriptor.name}", "k")
            assert (tuple(found.values()) if descriptor.name == "a" else found) == expected
            assert client.get(f"q-{descriptor.name}", "nobody") == empty


class Mean(mp.AggregateFunction):
    """Aggregate function with sum and count."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def test_namespaces_can_be_queried(job):
    """A query may name the namespace."""
    job = job()
    descriptor = mp.ValueStateDescriptor("v", int).set_queryable("v")
    job.state(descriptor, "k", namespace=(1, 5)).update(7)
    job.commit()
    with mp.QueryableStateClient(job.snapshots) as client:
        assert client.get("v", "k", (1, 5)) == 7
        assert client.get("v", "k", (1, 6)) is None


def test_namespaces_of_a_serializer_are_queried_by_their_bytes(job):
    """Namespaces of a custom serializer are queried by their bytes, because its class is unknown."""
    job, serializer = job(), mp.PickleSerializer()
    descriptor = mp.ValueStateDescriptor("v", int).set_queryable("v")
    job.state(descriptor, "k", namespace="x", namespace_type=serializer).update(7)
    job.commit()
    with mp.QueryableStateClient(job.snapshots) as client:
        assert client.get("v", "k", serializer.serialize("x")) == 7
        for namespace in ("x", 3):
            with pytest.raises(errors.StateTypeError, match="give its bytes"):
                client.get("v", "k", namespace)


def test_wrong_queries_say_what_is_wrong(job, tmp_path):
    """An unknown name, a key of another type, a closed client and an empty directory are refused."""
    job = job()
    job.state(PROFILE, "ann").update(Profile("Ann", 1))
    job.state(mp.ValueStateDescriptor("private", int), "ann").update(1)
    job.commit()
    client = mp.QueryableStateClient(job.snapshots)
    with pytest.raises(errors.StateNameError, match="profiles"):
        client.get("private", "ann")
    with pytest.raises(errors.StateTypeError):
        client.get("profiles", 3)
    client.close()
    client.close()
    with pytest.raises(errors.BackendClosedError):
        client.get("profiles", "ann")
    with pytest.raises(errors.RestoreError):
        mp.QueryableStateClient(tmp_path / "nothing")


def test_two_states_cannot_share_a_query_name(job):
    """A second state with the same query name is refused."""
    job = job()
    job.state(PROFILE, "ann")
    with pytest.raises(errors.StateNameError, match="profile"):
        job.state(mp.ValueStateDescriptor("other", int).set_queryable("profiles"), "ann")


class Visits(mp.KeyedProcessFunction):
    """Function that counts rows by key in a queryable state."""

    def open(self, context):
        descriptor = mp.ValueStateDescriptor("visits", int, default=0)
        self.visits = context.get_state(descriptor.set_queryable("visits"))

    def process_element(self, row, context):
        self.visits.update(self.visits.value() + row.n)


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("backend", ["rocksdb", "lmdb"])
def test_a_query_of_spark(spark, job_conf, files, tmp_path, backend):
    """A client follows the batches that Spark commits, across all subtasks."""
    job_conf(state_backend=backend, parallelism=2)
    checkpoint = tmp_path / "query" / "checkpoint"

    def go():
        stream = key_by(files.stream(), "k")
        run(stream.process(Visits(), output="k string", uid="visits"), tmp_path)

    files.add(*((key, 1) for key in "abcdef"))
    go()
    with mp.QueryableStateClient(
        tmp_path / "snapshots", checkpoint=checkpoint, backend=backend, refresh_after_ms=0
    ) as client:
        assert [client.get("visits", key) for key in "abcdefg"] == [1, 1, 1, 1, 1, 1, None]
        files.add(("a", 4), ("g", 9))
        go()
        assert [client.get("visits", key) for key in "abg"] == [5, 1, 9]


def parted(tmp_path):
    """Two subtasks' backends with a key each, and a function that commits a value for both."""
    storage = mp.checkpoint_storage((tmp_path / "parted").as_uri())
    halves = (mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127))
    keys = [
        next(k for k in map(str, range(99)) if mp.assign_to_key_group(k, 128) in half)
        for half in halves
    ]
    backends = [
        mp.open_keyed_backend("heap", key_type=str, place="q/parted", key_group_range=half)
        for half in halves
    ]
    descriptor = mp.ValueStateDescriptor("s", int).set_queryable("q")

    def commit(number):
        for backend, key in zip(backends, keys, strict=True):
            backend.set_current_key(key)
            backend.get_partitioned_state(descriptor).update(number)
            backend.snapshot(number, storage).result()
            backend.notify_checkpoint_complete(number)

    return keys, commit


def test_what_a_subtask_has_never_had_is_empty(tmp_path):
    """A missing list is [] and a missing map {}, also for a key of a subtask without that state."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    states = [
        mp.ListStateDescriptor("l", int).set_queryable("list"),
        mp.MapStateDescriptor("m", str, int).set_queryable("map"),
        mp.ValueStateDescriptor("v", int).set_queryable("value"),
    ]
    for half, known in ((mp.KeyGroupRange(0, 63), states), (mp.KeyGroupRange(64, 127), states[2:])):
        with mp.open_keyed_backend(
            "heap", key_type=str, place="q/op", key_group_range=half
        ) as backend:
            for descriptor in known:
                backend.get_partitioned_state(descriptor)
            backend.snapshot(1, storage).result()
    with mp.QueryableStateClient(tmp_path / "s") as client:
        for key in map(str, range(20)):
            found = [client.get(name, key) for name in ("list", "map", "value")]
            assert found == [[], {}, None]


@pytest.mark.parametrize("metadata", [None, "{}"])
def test_a_checkpoint_that_is_none_is_told(job, tmp_path, metadata):
    """If the path is no checkpoint, the error names it and the correct argument."""
    job = job()
    job.state(PROFILE, "ann").update(Profile("Ann", 1))
    job.commit()
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    if metadata is not None:
        (wrong / "metadata").write_text(metadata)
    with pytest.raises(errors.CorruptSnapshotError, match="name the checkpointLocation") as caught:
        mp.QueryableStateClient(job.snapshots, checkpoint=wrong)
    assert caught.value.file == f"{wrong.as_uri()}/metadata"


def test_a_failed_refresh_leaves_one_version(tmp_path):
    """If one subtask's snapshot is damaged, the query fails, and a later one recovers."""
    keys, commit = parted(tmp_path)
    commit(1)
    with mp.QueryableStateClient(tmp_path / "parted", refresh_after_ms=10**9) as client:
        assert [client.get("q", key) for key in keys] == [1, 1]
        commit(2)
        (victim,) = (tmp_path / "parted").glob("**/kg-64-127/2-*.snapshot")
        sound = victim.read_bytes()
        victim.write_bytes(sound[:20] + bytes([sound[20] ^ 255]) + sound[21:])
        for ask in (client.refresh, lambda: client.get("q", keys[0])):
            with pytest.raises(errors.MillpondError):
                ask()
        victim.write_bytes(sound)
        assert [client.get("q", key) for key in keys] == [2, 2]


def test_a_closed_client_is_not_refreshed(tmp_path):
    """After close, `refresh` and `get` raise the same error, and open nothing."""
    keys, commit = parted(tmp_path)
    commit(1)
    client = mp.QueryableStateClient(tmp_path / "parted")
    client.close()
    for ask in (client.refresh, lambda: client.get("q", keys[0])):
        with pytest.raises(errors.BackendClosedError):
            ask()


def renamed(tmp_path):
    """A job of two runs, whose second run gives a query name to another state."""
    storage, restore = mp.checkpoint_storage((tmp_path / "s").as_uri()), []
    for number, name in ((1, "a"), (2, "b")):
        with mp.open_keyed_backend("heap", key_type=str, place="q/j", restore=restore) as backend:
            backend.set_current_key("k")
            descriptor = mp.ValueStateDescriptor(name, int).set_queryable("totals")
            backend.get_partitioned_state(descriptor).update(number)
            restore = [backend.snapshot(number, storage).result().handle]
    return restore[0]


def test_a_query_name_goes_to_the_state_that_takes_it(tmp_path):
    """A restored state that is no longer requested gives up its query name."""
    handle = renamed(tmp_path)
    assert {meta.name: meta.query_name for meta in handle.states} == {"a": "", "b": "totals"}
    with mp.QueryableStateClient(tmp_path / "s") as client:
        assert client.names() == ["totals"]
        assert client.get("totals", "k") == 2


def test_a_query_name_of_two_stored_states_is_refused(tmp_path, monkeypatch):
    """If a snapshot publishes two states under one name, the query is refused."""
    with mp.open_keyed_backend("heap", key_type=str, place="q/j") as backend:
        backend.set_current_key("k")
        for name in "ab":
            state = mp.ValueStateDescriptor(name, int).set_queryable(f"totals-{name}")
            backend.get_partitioned_state(state).update(1)
        metas = [attrs.evolve(meta, query_name="totals") for meta in backend.states.metas()]
        monkeypatch.setattr(backend.states, "metas", lambda: metas)
        backend.snapshot(1, mp.checkpoint_storage((tmp_path / "s").as_uri())).result()
    with mp.QueryableStateClient(tmp_path / "s") as client:
        assert client.names() == ["totals"]
        with pytest.raises(errors.StateNameError, match="'a', 'b' are all published under it"):
            client.get("totals", "k")


@BACKENDS
@pytest.mark.parametrize("strategy", ["full", "changelog"])
def test_replaced_replicas_are_deleted(job, tmp_path, backend, strategy):
    """A client's directory contains only the copy in use, and nothing after close."""
    job = job(config=mp.Config({"state.snapshot.strategy": strategy}))
    replica = tmp_path / "replica"
    job.state(PROFILE, "ann").update(Profile("Ann", 0))
    job.commit()
    with mp.QueryableStateClient(job.snapshots, backend=backend, directory=replica) as client:
        for visits in range(1, 5):
            job.state(PROFILE, "ann").update(Profile("Ann", visits))
            job.commit()
            client.refresh()
            assert client.get("profiles", "ann") == {"name": "Ann", "visits": visits}
            assert len(list(replica.iterdir())) == 1
    assert list(replica.iterdir()) == []
