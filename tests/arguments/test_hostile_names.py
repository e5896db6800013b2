"""Names are checked where they enter: an accepted name can be stored, found again and shown."""

from importlib.metadata import EntryPoint

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.config import PluginsConfig
from millpond.errors import printable
from millpond.functions.metric_group import MetricGroup
from millpond.operator_id import check_place, check_uid
from millpond.operator_id import check_uid as planned_uid
from millpond.plugins.registry import PluginRegistry, Status, discover

HOSTILE = (
    *("../../x", "..", ".", "a//b", "/a", "a/", "a/b/c", "a\\b", "a\0b", "\x1b[31m", "con\n", "\n"),
    *("a b", " a", "~", "-a", "_a", "a:b", "a%2F", "é", "a\u202eb", "\u2028", "\ud800", "x" * 101),
    *("query/..", "../uid", "query/savepoint.json", "savepoint.json", "a/\n", "a\n/b"),
)
UNSHOWN = ("", "a\0b", "\x1b[31m", "con\n", "\r", "\x7f", "\x85", "\ud800", "x" * 256)
"""Characters that no name may contain, because they would change what a terminal or log shows."""


class Count(mp.KeyedProcessFunction):
    """Function that keeps no state."""

    def process_element(self, row, context):
        yield row.k


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_places_are_refused_at_every_door(name, tmp_path):
    """`place` must be a uid, or a query and a uid; otherwise nothing is written."""
    with pytest.raises(errors.ConfigError, match="open_keyed_backend"):
        mp.open_keyed_backend("heap", key_type=str, place=name, directory=tmp_path / "new")
    with pytest.raises(errors.ConfigError, match="open_operator_backend"):
        mp.open_operator_backend(place=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*HOSTILE, "query/uid"])
def test_hostile_uids_are_refused_at_every_door(name, tmp_path):
    """A uid is the name of a folder: local runs, written savepoints and Spark check it."""
    with pytest.raises(errors.ConfigError, match="uid"):
        mp.local.run(Count(), [{"k": "a"}], key="k", uid=name)
    writer = mp.SavepointWriter.new_savepoint(max_parallelism=128)
    for call in (
        lambda: writer.with_operator(name, [], key="k"),
        lambda: planned_uid(name, "process(...)"),
    ):
        with pytest.raises(errors.MillpondError, match="uid"):
            call()


@pytest.mark.parametrize("name", UNSHOWN)
def test_names_that_cannot_be_shown_are_refused(name):
    """States, queries, tags and metrics refuse control characters and names of 256 bytes."""
    described = mp.ValueStateDescriptor("state", int)
    for call in (
        lambda: mp.ValueStateDescriptor(name, int),
        lambda: mp.ListStateDescriptor(name, int),
        lambda: mp.MapStateDescriptor(name, int, int),
        lambda: mp.ReducingStateDescriptor(name, max, int),
        lambda: mp.FoldingStateDescriptor(name, 0, max, int),
        lambda: described.set_queryable(name),
        lambda: mp.OutputTag(name),
        lambda: MetricGroup().counter(name),
        lambda: MetricGroup().gauge(name, int),
        lambda: MetricGroup().add_group(name),
        lambda: MetricGroup().distribution(name),
    ):
        with pytest.raises((errors.StateNameError, errors.ArgumentValueError)) as caught:
            call()
        assert printable(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    "folder", ["..", "../x", "/x", "a//b", ".", "a\\b", "a\0b", "a/../b", "x" * 2000]
)
def test_hostile_folders_of_savepoints_are_refused(folder):
    """A handle can only be created for a folder below its storage."""
    with pytest.raises(errors.ArgumentValueError, match="folder"):
        mp.SavepointHandle(1, folder, mp.checkpoint_storage("memory:folders"))


@pytest.mark.parametrize("name", sorted({*HOSTILE} - {"savepoint.json"}))
def test_hostile_names_of_plugins_are_refused(name):
    """A plugin with such a name is listed as broken with a reason; the others still load."""
    record = EntryPoint(name, "millpond_heap", "millpond.plugins")
    sound = EntryPoint("heap", "millpond_heap", "millpond.plugins")
    registry = PluginRegistry(PluginsConfig(), discover([record, sound]))
    broken, usable = sorted(registry.records, key=lambda each: each.name == "heap")
    assert (broken.status, usable.status) == (Status.BROKEN, Status.OK)
    assert "name must be" in broken.reason
    with pytest.raises(errors.PluginLoadError):
        registry.backend(name)


@settings(deadline=None)
@given(st.text())
def test_a_place_that_is_accepted_names_its_folder(text):
    """A text is either refused, or the folder of the operator has this name."""
    try:
        operator = check_place(text, "test")
    except errors.ConfigError:
        return
    assert operator.folder == (text or "state")
    if text:
        check_uid(operator.uid, "test")


@settings(deadline=None)
@given(st.text(min_size=1, max_size=80))
def test_a_state_name_that_is_accepted_is_restored(name):
    """A name is either refused, or snapshots and savepoints restore the state under it."""
    try:
        descriptor = mp.ValueStateDescriptor(name, int)
    except errors.StateNameError:
        return
    storage = mp.checkpoint_storage("memory:names")
    with mp.open_keyed_backend("heap", key_type=str, place="q/op") as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(descriptor).update(1)
        handles = [
            taken(1, storage).result().handle for taken in (backend.snapshot, backend.savepoint)
        ]
    for handle in handles:
        with mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as again:
            again.set_current_key("k")
            assert again.get_partitioned_state(descriptor).value() == 1
