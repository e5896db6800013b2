"""Limits of the size of operator state in snapshots, for jobs and tools."""

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.snapshots.operator_state import read_partitions
from millpond_cli.main import commands

LAST = mp.ListStateDescriptor("last", str)


class Count(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that yields the number of strings in its list."""

    def initialize_state(self, context):
        self.last = context.operator_state_store.get_list_state(LAST)

    def process_element(self, row, context):
        yield len(self.last.get())

    def snapshot_state(self, context):
        """Do nothing: the list is complete."""


def harness(**options):
    """Return the function in a harness."""
    return mp.testing.KeyedOperatorHarness(Count(), key="k", **options)


@pytest.fixture
def written(tmp_path):
    """The handle of a snapshot in a directory, with 100 kB of operator state."""
    storage = mp.checkpoint_storage(str(tmp_path / "snapshots"))
    with mp.open_keyed_backend("heap", key_type=str, place="q/op") as backend:
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        backend.operator_state = mp.open_operator_backend()
        texts = backend.operator_state.get_list_state(LAST)
        texts.add("x" * 100_000)
        return backend.snapshot(1, storage).result().handle


def test_the_configured_limits_bound_operator_state_of_snapshots(written):
    """Operator state larger than `restore.max-file-bytes` is refused by every restore."""
    config = mp.Config({"restore.max-file-bytes": 1000})
    with pytest.raises(errors.CorruptSnapshotError, match="restore.max-file-bytes"):
        mp.open_operator_backend(restore=written.operator_state, config=config)
    with pytest.raises(errors.CorruptSnapshotError, match="restore.max-file-bytes"):
        harness(restore=written, config=config)
    with harness(restore=written) as operator:
        operator.process({"k": "a"})
        assert operator.output == [1]


@pytest.mark.parametrize(
    "call",
    [
        ("checkpoint", "verify", "{snapshots}"),
        ("state", "dump", "{snapshots}", "last"),
        ("savepoint", "create", "{snapshots}", "{new}", "--snapshots", "{snapshots}"),
    ],
)
def test_the_configured_limits_bound_operator_state_in_tools(written, tmp_path, call):
    """The commands refuse larger operator state too, and name the option."""
    assert written.operator_state
    (tmp_path / "limits.toml").write_text("[millpond.restore]\nmax-file-bytes = 1000\n")
    places = {"snapshots": tmp_path / "snapshots", "new": tmp_path / "new"}
    arguments = [each.format(**places) for each in call]
    runner = CliRunner()
    limited = ["--config", str(tmp_path / "limits.toml"), *arguments]
    result = runner.invoke(commands, limited)
    assert result.exit_code == 1, result.output
    assert "restore.max-file-bytes" in "".join(result.output.split())
    assert runner.invoke(commands, arguments).exit_code == 0


def test_offsets_and_numbers_stay_within_the_file():
    """Elements, also empty ones, are read back; a handle with offsets outside of the file is refused."""
    with mp.open_operator_backend() as backend:
        backend.get_list_state(mp.ListStateDescriptor("parts", bytes)).add_all(
            [b"first", b"", b"x"]
        )
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:parts")).result().handle
    assert [data[-1:] for data in read_partitions(handle).values()] == [b"t", b"", b"x"]
    (state,) = handle.states
    for numbers in ((5,), (-1,)):
        claimed = attrs.evolve(handle, states=(attrs.evolve(state, partitions=numbers),))
        with pytest.raises(errors.CorruptSnapshotError, match="no partition"):
            read_partitions(claimed)
    for offsets in ((0, 9, 3), (-1, 2, 3), (0, 1, 1 << 40)):
        with pytest.raises(errors.CorruptSnapshotError, match="offsets"):
            read_partitions(attrs.evolve(handle, offsets=offsets))
