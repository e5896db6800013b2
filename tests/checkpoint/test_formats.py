"""Each format has its own version, which can be raised alone; old files remain readable."""

import json
import re
from pathlib import Path

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond import format_versions as formats
from millpond.backend.working_directory import MARKER_FILE, CleanShutdown
from millpond.format_versions import Format
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import OperatorStateHandle
from millpond_spark.plan.layout import Layout, read_layout, write_layout
from millpond_spark.plan.pointer import Pointer

ROOT = Path(__file__).resolve().parents[2]
SPENT = mp.ValueStateDescriptor("spent", float)
FORMATS = [
    value
    for value in vars(formats).values()
    # A local copy of another format is no error, because the snapshot is restored instead.
    if isinstance(value, Format) and value is not formats.LOCAL_COPY
]


def backend(**options):
    """Return a heap backend with one value, or a restored one."""
    opened = mp.open_keyed_backend("heap", key_type=str, place="job", **options)
    opened.set_current_key("alice")
    if not options:
        opened.get_partitioned_state(SPENT).update(1.5)
    return opened


def snapshot(storage):
    """Return the handle of a snapshot as JSON."""
    with backend() as opened:
        return opened.snapshot(1, storage).result().handle.to_json()


def restore(storage, text):
    """Return the value in a snapshot."""
    handle = mp.KeyedStateHandle.from_json(text, storage)
    with backend(restore=[handle]) as opened:
        return opened.get_partitioned_state(SPENT).value()


def operator_snapshot(storage):
    """Return the handle of a snapshot of operator state as JSON."""
    with mp.open_operator_backend() as opened:
        opened.get_list_state(mp.ListStateDescriptor("offsets", float)).add(1.5)
        return opened.snapshot(1, storage).result().handle.to_json()


def operator_restore(storage, text):
    """Return the element in a snapshot of operator state."""
    handle = OperatorStateHandle.from_json(text, storage)
    with mp.open_operator_backend(restore=[handle]) as opened:
        return opened.get_list_state(mp.ListStateDescriptor("offsets", float)).get()[0]


def savepoint(storage):
    """Return the path of a savepoint."""
    with backend() as opened:
        handle = opened.savepoint(1, storage).result().handle
    return storage.uri.removeprefix("file://") + "/" + handle.folder


def savepoint_restore(_, path):
    """Return the value in a savepoint."""
    with backend(restore=[path]) as opened:
        return opened.get_partitioned_state(SPENT).value()


def layout(storage):
    """Return the number of a layout."""
    write_layout(storage, OperatorId("query", "job"), Layout(3, 2, 128))
    return 3


def layout_read(storage, number):
    """Return a number from a layout."""
    return (
        1.5
        if read_layout(storage, OperatorId("query", "job"), number) == Layout(3, 2, 128)
        else None
    )


def pointer(_):
    """Return a pointer's row."""
    return attrs.astuple(Pointer("job", "v", 1, 0, 127, "", "{}", 0))


def pointer_read(_, row):
    """Return a number from a pointer."""
    return 1.5 if Pointer.from_row(row).key_group_range == KeyGroupRange(0, 127) else None


WAYS = {
    "snapshot handle": (snapshot, restore),
    "operator state handle": (operator_snapshot, operator_restore),
    "snapshot file": (snapshot, restore),
    "savepoint": (savepoint, savepoint_restore),
    "layout": (layout, layout_read),
    "pointer": (pointer, pointer_read),
}


def set_version(form, version):
    """Let Millpond write another version of a format."""
    object.__setattr__(form, "version", version)


@pytest.fixture(params=FORMATS, ids=lambda form: form.name)
def form(request):
    """A format, whose version is restored after the test."""
    version = request.param.version
    yield request.param
    set_version(request.param, version)


def test_a_raised_version_reads_its_own_and_older_ones(form, tmp_path):
    """If one version is raised, files of all formats are written and read, old ones included."""
    old, new = (mp.checkpoint_storage((tmp_path / name).as_uri()) for name in ("old", "new"))
    before = {name: write(old) for name, (write, _) in WAYS.items()}
    set_version(form, form.version + 1)
    for name, (write, read) in WAYS.items():
        assert read(old, before[name]) == 1.5
        assert read(new, write(new)) == 1.5


def test_a_newer_version_is_refused_by_name(form, tmp_path):
    """A newer file is refused with the name of the format and both versions."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    write, read = WAYS[form.name]
    known = form.version
    set_version(form, known + 1)
    written = write(storage)
    set_version(form, known)
    with pytest.raises(errors.ApiVersionError, match=f"The {form.name}") as refused:
        read(storage, written)
    assert (refused.value.found, refused.value.supported) == (known + 1, known)


def test_operator_state_within_a_snapshot_is_checked(tmp_path):
    """A snapshot with operator state of a newer format is refused."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = mp.KeyedStateHandle.from_json(snapshot(storage), storage)
    with mp.open_operator_backend() as opened:
        opened.get_list_state(mp.ListStateDescriptor("offsets", float)).add(1.5)
        part = opened.snapshot(1, storage).result().handle
    tree = json.loads(attrs.evolve(handle, operator_state=(part,)).to_json())
    tree["operator_state"][0]["format_version"] = 7
    with pytest.raises(errors.ApiVersionError, match="operator state handle") as refused:
        mp.KeyedStateHandle.from_json(json.dumps(tree), storage)
    assert refused.value.found == 7


def test_an_old_snapshot_is_written_anew_as_it_is_now(tmp_path):
    """A handle that was read in an old version is written in the current one."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = mp.KeyedStateHandle.from_json(snapshot(storage), storage)
    version = formats.SNAPSHOT_HANDLE.version
    try:
        set_version(formats.SNAPSHOT_HANDLE, version + 1)
        again = mp.KeyedStateHandle.from_json(handle.to_json(), storage)
        assert again.format_version == version + 1
    finally:
        set_version(formats.SNAPSHOT_HANDLE, version)


def test_an_old_savepoint_is_sealed_anew_as_it_is_now(tmp_path):
    """A savepoint of an old version that is sealed again has the current version."""
    path = savepoint(mp.checkpoint_storage(tmp_path.as_uri()))
    version = formats.SAVEPOINT.version
    try:
        set_version(formats.SAVEPOINT, version + 1)
        mp.seal_savepoint(path)
        text = (Path(path) / "savepoint.json").read_text()
        assert int(re.search(r'"format_version": (\d+)', text)[1]) == version + 1
    finally:
        set_version(formats.SAVEPOINT, version)


def test_the_marker_of_a_newer_local_copy_is_none(tmp_path):
    """A marker of an older format is read; with a newer one, the snapshot is restored instead."""
    marker, version = CleanShutdown("here", "boot", None, {}), formats.LOCAL_COPY.version
    marker.write(tmp_path)
    try:
        set_version(formats.LOCAL_COPY, version + 1)
        assert CleanShutdown.read(tmp_path) == marker
        (tmp_path / MARKER_FILE).unlink()
        marker.write(tmp_path)
        assert CleanShutdown.read(tmp_path) == marker
    finally:
        set_version(formats.LOCAL_COPY, version)
    assert CleanShutdown.read(tmp_path) is None


@pytest.mark.parametrize("found", [0, -1, None, "1", 1.0, True, [1]])
def test_a_version_that_is_none(found):
    """A version that is not a positive integer is damage."""
    with pytest.raises(errors.CorruptSnapshotError, match="format version"):
        Format("letter", 2).check(found, "a/b")


def test_plugins_state_the_api_as_a_number():
    """Each of our plugins states the version of its API as a number.

    An imported constant would agree with every core.
    """
    places = ("plugins/*/src/*/__init__.py", "examples/*/src/*/__init__.py",
              "conformance/src/*/template/src/package/__init__.py.txt",
              "core/src/millpond/plugins/builtin.py")  # fmt: skip
    files = [path for place in places for path in ROOT.glob(place)]
    assert len(files) >= 6
    for path in files:
        assert re.search(r"^MILLPOND_API = \d+$", path.read_text(), re.MULTILINE), path
