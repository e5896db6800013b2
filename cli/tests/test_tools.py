"""Commands that read checkpoint directories and savepoints."""

import csv
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import millpond as mp
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.snapshots.catalog import read_catalog
from millpond_cli.inspection.orphans import delete_file, orphans
from millpond_cli.jobfile import load_function
from millpond_cli.main import commands
from millpond_cli.targets import spark_path
from millpond_cli.terminal import CommandGroup
from millpond_spark.plan.layout import Layout, write_layout

TOTAL = mp.ValueStateDescriptor("total", float)
BASKET = mp.MapStateDescriptor("basket", str, int)


def millpond(*arguments, status=0):
    """Run a command; return its standard output."""
    result = CliRunner().invoke(commands, [str(each) for each in arguments])
    assert result.exit_code == status, result.output
    return result.stdout


def refused(*arguments, status=1):
    """Run a command that is refused; return its standard error."""
    result = CliRunner().invoke(commands, [str(each) for each in arguments])
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    return result.stderr


def as_json(*arguments, **options):
    """Run a command with --json."""
    return json.loads(millpond(*arguments, "--json", **options))


@pytest.fixture
def directory(tmp_path):
    """A checkpoint directory: two confirmed snapshots, and the file of a lost attempt."""
    folder = tmp_path / "checkpoints"
    storage = mp.checkpoint_storage(folder.as_uri())
    with mp.open_keyed_backend("heap", key_type=str, place="q1/totals") as backend:
        total, basket = (backend.get_partitioned_state(each) for each in (TOTAL, BASKET))
        for number in range(5):
            backend.set_current_key(f"k{number}")
            total.update(number * 1.5)
            basket.put("a", number)
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        storage.write(f"q1/totals/kg-0-127/1-{'0' * 32}_000012.sst", [b"of a lost attempt"])
        backend.set_current_key("k1")
        total.update(100.0)
        backend.snapshot(2, storage).result()
    return folder


def test_a_file_that_goes_meanwhile_is_not_deleted_again(directory):
    """A file that the job deletes after the listing is not counted as deleted by `gc`."""
    catalog = read_catalog(mp.checkpoint_storage(directory.as_uri()))
    first, gone = orphans(catalog, 1)[0], "q1/totals/kg-0-127/1-gone.snapshot"
    assert (
        delete_file(catalog.storage, first, dry_run=True)
        == delete_file(catalog.storage, first)
        == 17
    )
    assert delete_file(catalog.storage, first) is None
    assert delete_file(catalog.storage, gone, dry_run=True) is None


def test_list_show_and_verify(directory):
    """All snapshots are listed, and the newest one's files are shown and verified."""
    assert [row["checkpoint"] for row in as_json("checkpoint", "list", directory)][-1] == 2
    kinds = [row["kind"] for row in as_json("checkpoint", "show", directory)]
    assert kinds == ["base", "delta"]
    assert {row["verdict"] for row in as_json("checkpoint", "verify", directory)} == {"ok"}


def test_verify_names_a_damaged_file(directory):
    """A flipped byte gives status 1 and the file's name."""
    path = directory / as_json("checkpoint", "show", directory)[-1]["file"]
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    rows = as_json("checkpoint", "verify", directory, status=1)
    assert [row["file"] for row in rows if row["verdict"] != "ok"] == [
        str(path.relative_to(directory))
    ]


def test_diff_counts_by_state(directory):
    """`diff` counts one changed value between two checkpoints."""
    rows = {row["state"]: row for row in as_json("checkpoint", "diff", directory, 1, 2)}
    assert rows["total"] == {"state": "total", "added": 0, "removed": 0, "changed": 1, "same": 4}
    assert rows["basket"]["same"] == 5


def test_gc_deletes_what_nobody_needs(directory):
    """A dry run deletes nothing; then only the files remain that the newest snapshot needs."""
    before = sorted(directory.rglob("*.*"))
    would = as_json("checkpoint", "gc", directory, "--retained", 1, "--dry-run")
    assert sorted(directory.rglob("*.*")) == before
    gone = as_json("checkpoint", "gc", directory, "--retained", 1)
    assert gone == would
    assert any("0" * 32 in row["file"] for row in gone)
    assert as_json("checkpoint", "gc", directory, "--retained", 1) == []
    assert as_json("state", "get", directory, "total", "k1")[0]["value"] == 100.0


def test_gc_before_the_first_snapshot_has_nothing_to_do(tmp_path):
    """`gc` accepts a started query without a checkpoint, and refuses an unrelated directory."""
    storage = mp.checkpoint_storage((tmp_path / "new").as_uri())
    layout = Layout(number=0, parallelism=2, max_parallelism=128, roster=("totals",))
    write_layout(storage, OperatorId("q1", "totals"), layout)
    assert as_json("checkpoint", "gc", tmp_path / "new") == []
    (tmp_path / "foreign").mkdir()
    assert "holds no snapshots" in refused("checkpoint", "gc", tmp_path / "foreign")


def test_list_get_dump_and_export(directory, tmp_path):
    """States are listed with their types; rows are written as JSON, Parquet, CSV and Arrow."""
    listed = {row["state"]: row for row in as_json("state", "list", directory)}
    assert listed["basket"]["map_key"] == "str"
    assert as_json("state", "get", directory, "basket", "k2")[0]["value"] == 2
    assert "'k9' holds nothing in 'total'" in refused("state", "get", directory, "total", "k9")
    lines = [
        json.loads(line) for line in millpond("state", "dump", directory, "total").splitlines()
    ]
    assert {line["key"]: line["value"] for line in lines}["k4"] == 6.0
    for ending in ("parquet", "csv", "arrow"):
        millpond("state", "export", directory, "total", tmp_path / f"total.{ending}")
    assert len(pd.read_parquet(tmp_path / "total.parquet")) == 5
    with (tmp_path / "total.csv").open() as file:
        assert {row["key"] for row in csv.DictReader(file)} == {f"k{n}" for n in range(5)}
    with pa.OSFile(str(tmp_path / "total.arrow")) as file:
        assert pa.ipc.open_file(file).read_all().num_rows == 5
    wrong = refused("state", "export", directory, "total", tmp_path / "total.txt", status=2)
    assert "expected one of the endings" in wrong
    assert "there are: 'basket', 'total'" in refused("state", "dump", directory, "totl")


@pytest.mark.parametrize("target", ["s3://x/y.csv", "file:///tmp/none/u.csv"])
def test_export_writes_local_files(directory, target):
    """A URI is a wrong call, not a relative path with a colon."""
    said = refused("state", "export", directory, "total", target, status=2)
    assert f"{target!r} is a URI; a local path is expected" in said


def test_export_writes_a_new_file_outside_of_what_it_reads(directory, tmp_path):
    """A savepoint's own table, a file inside a savepoint and an existing file are refused."""
    place, link = tmp_path / "savepoint", tmp_path / "link"
    millpond("savepoint", "create", directory, place, "--snapshots", directory)
    link.symlink_to(place)
    table = max((place / "totals" / "total").glob("*.parquet"))
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for target in (table, place / "new.csv", link / "new.csv"):
        assert "which this command reads" in refused("state", "export", place, "total", target)
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    within = refused(
        "state", "export", place, "total", directory / "x.csv", "--snapshots", directory
    )
    assert f"it lies in {directory}, which this command reads; name another file" in within
    (tmp_path / "old.csv").write_text("kept")
    assert "is there already" in refused("state", "export", place, "total", tmp_path / "old.csv")
    assert (tmp_path / "old.csv").read_text() == "kept"


def test_edit_writes_a_savepoint_that_restores(directory, tmp_path):
    """A backend that restores the savepoint sees a changed, an added and a removed value."""
    first, second, third = (tmp_path / name for name in ("one", "two", "three"))
    millpond("state", "edit", directory, "total", "k1", first, "--set", "7")
    millpond("state", "edit", first, "total", "new", second, "--set", "8.5")
    millpond("state", "edit", second, "basket", "k3", third, "--remove", "--map-key", "a")
    with mp.open_keyed_backend("heap", key_type=str, place="totals", restore=[third]) as backend:
        total, basket = (backend.get_partitioned_state(each) for each in (TOTAL, BASKET))
        found = {}
        for key in list(backend.keys("total")):
            backend.set_current_key(key)
            found[key] = total.value()
        backend.set_current_key("k3")
        assert basket.is_empty()
    assert found == {"k0": 0.0, "k1": 7.0, "k2": 3.0, "k3": 4.5, "k4": 6.0, "new": 8.5}


def test_check_says_what_a_job_can_restore(directory, tmp_path, monkeypatch):
    """The function's own types fit; another type is reported before the job starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(
        "import millpond as mp\n"
        "class Job(mp.KeyedProcessFunction):\n"
        "    kind = float\n"
        "    def open(self, context):\n"
        "        context.get_state(mp.ValueStateDescriptor('total', self.kind))\n"
        "        context.get_state(mp.ValueStateDescriptor('fresh', int))\n"
        "    def process_element(self, row, context):\n"
        "        return None\n"
        "class Other(Job):\n"
        "    kind = str\n"
    )
    rows = as_json("state", "check", directory, "--against", "job.py:Job")
    assert {row["state"]: row["outcome"] for row in rows} == {
        "total": "as is", "fresh": "new", "basket": "unused",
    }  # fmt: skip
    rows = as_json("state", "check", directory, "--against", "job.py:Other", status=1)
    assert next(row["outcome"] for row in rows if row["state"] == "total") == "incompatible"
    assert "cannot be loaded" in refused("state", "check", directory, "--against", "job.py:No")


OWN_STATE = """
import millpond as mp

class Job(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    kind, key, union = int, str, False
    def initialize_state(self, context):
        store = context.operator_state_store
        get = store.get_union_list_state if self.union else store.get_list_state
        self.waiting = get(mp.ListStateDescriptor("waiting", self.kind))
        self.rules = store.get_broadcast_state(mp.MapStateDescriptor("waiting", self.key, int))
        context.keyed_state_store.get_state(mp.ValueStateDescriptor("total", int))
    def open(self, context):
        assert self.waiting.get() == []
    def process_element(self, row, context):
        self.waiting.add(row.n)
    def snapshot_state(self, context):
        return None

class Texts(Job):
    kind = str
class Union(Job):
    union = True
class Keys(Job):
    key = bytes
class Listed(mp.KeyedProcessFunction, mp.ListCheckpointed):
    element_type = int
    def restore_state(self, elements):
        raise AssertionError("there is nothing to restore")
    def process_element(self, row, context):
        return None
    def snapshot_state(self, checkpoint_id):
        return [1]
"""


def test_check_looks_at_operator_state(tmp_path, monkeypatch):
    """Operator states that `initialize_state` requests are checked by mode, element and map key types."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_STATE)
    job = load_function("own.py:Job", tmp_path)
    with mp.testing.KeyedOperatorHarness(job, key="k") as operator:
        operator.process({"k": "a", "n": 1})
        operator.savepoint(tmp_path / "saved")

    def found(name, status):
        call = ("state", "check", tmp_path / "saved", "--against", f"own.py:{name}")
        return [(row["state"], row["outcome"]) for row in as_json(*call, status=status)]

    fits = [("total", "as is"), ("waiting", "as is"), ("waiting", "as is")]
    assert found("Job", 0) == fits
    bad = ("waiting", "incompatible")
    assert found("Texts", 1) == found("Union", 1) == [fits[0], bad, fits[1]]
    assert found("Keys", 1) == [*fits[:2], bad]
    unused = [("total", "unused"), ("waiting", "unused"), ("waiting", "unused")]
    assert found("Listed", 0) == [unused[0], ("list-checkpointed", "new"), *unused[1:]]


def test_savepoints_are_created_sealed_and_rekeyed(directory, tmp_path):
    """An edit by pandas is accepted after sealing; re-keying keeps every row."""
    place = tmp_path / "savepoint"
    millpond("savepoint", "create", directory, place, "--snapshots", directory)
    (file,) = (place / "totals" / "total").glob("*.parquet")
    frame = pd.read_parquet(place / "totals" / "total")
    frame.loc[frame.key == "k1", "value"] = 55.0
    frame.to_parquet(file)
    with pytest.raises(errors.CorruptSnapshotError, match="seal_savepoint"):
        mp.open_keyed_backend("heap", key_type=str, restore=[place])
    rows = {row["state"]: row for row in as_json("savepoint", "seal", place)}
    assert rows["total"]["rows"] == 5
    assert as_json("state", "get", place, "total", "k1")[0]["value"] == 55.0
    again = tmp_path / "again"
    rows = as_json("savepoint", "rekey", place, again, "--max-parallelism", 4096)
    assert {row["max_parallelism"] for row in rows} == {4096}
    assert as_json("state", "get", again, "total", "k1")[0]["value"] == 55.0


def test_state_list_counts_rows_and_expired_ones(tmp_path):
    """Live and expired entries are counted separately, by the time of the command."""
    storage = mp.checkpoint_storage((tmp_path / "ttl").as_uri())
    now = mp.SystemClock().now_ms
    clock = mp.ManualClock(now - 3_600_000)
    ttl = mp.StateTtlConfig(timedelta(minutes=30))
    with mp.open_keyed_backend("heap", key_type=str, place="q/ttl", clock=clock) as backend:
        descriptor = mp.ValueStateDescriptor("seen", int).enable_time_to_live(ttl)
        seen = backend.get_partitioned_state(descriptor)
        for key, moment in (("old", now - 3_600_000), ("older", now - 3_500_000), ("new", now)):
            backend.set_current_key(key)
            clock.set(moment)
            seen.update(1)
        clock.set(now - 3_600_000)
        backend.snapshot(1, storage).result()
    (row,) = as_json("state", "list", tmp_path / "ttl", "--count")
    assert (row["rows"], row["live"], row["expired"]) == (3, 1, 2)
    (plain,) = as_json("state", "list", tmp_path / "ttl")
    assert "rows" not in plain


def test_verify_reads_snapshots_of_structured_types(tmp_path):
    """Snapshots with structured types are verified; a missing file is found."""
    storage = mp.checkpoint_storage((tmp_path / "typed").as_uri())
    with mp.open_keyed_backend("heap", key_type=str, place="q/typed") as backend:
        descriptor = mp.ValueStateDescriptor("pair", tuple[int, str])
        state = backend.get_partitioned_state(descriptor)
        backend.set_current_key("a")
        for number in (1, 2):
            state.update((number, "b"))
            backend.snapshot(number, storage).result()
            backend.notify_checkpoint_complete(number)
    base, delta = as_json("checkpoint", "verify", tmp_path / "typed")
    assert base["verdict"] == delta["verdict"] == "ok"
    (tmp_path / "typed" / base["file"]).unlink()
    row, _ = as_json("checkpoint", "verify", tmp_path / "typed", status=1)
    assert "missing" in row["verdict"]


@pytest.mark.parametrize("verb", ["list", "show", "verify", "gc"])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nothing", "there is no such directory"),
        ("file", "it is a file"),
        ("savepoint", "it is a savepoint"),
        ("query", "it is the checkpointLocation of a Spark query"),
    ],
)
def test_what_is_no_checkpoint_directory(tmp_path, verb, place, message):
    """A path that contains something else, or does not exist, is refused."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "savepoint").mkdir()
    (tmp_path / "savepoint" / "savepoint.json").write_text("{}")
    (tmp_path / "query" / "offsets").mkdir(parents=True)
    (tmp_path / "query" / "metadata").write_text("{}")
    (tmp_path / "query" / "offsets" / "0").write_text("{}")
    said = refused("checkpoint", verb, tmp_path / place)
    assert message in said
    assert place in said


@pytest.mark.parametrize(
    "call", [("checkpoint", "list"), ("rescale", "query", "--parallelism", 2, "--snapshots")]
)
def test_a_place_that_no_storage_knows(tmp_path, monkeypatch, call):
    """A URI of an unknown scheme is refused as it was given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "query" / "offsets").mkdir(parents=True)
    (tmp_path / "query" / "metadata").write_text('{"id": "q"}')
    said = refused(*call, "nowhere://there")
    assert "nowhere://there: expected one of the schemes" in said
    assert "checkpoint.dir" not in said


def test_an_empty_directory_is_listed_and_not_verified(tmp_path):
    """An empty directory can be listed, but not verified."""
    assert "holds no snapshots" in millpond("checkpoint", "list", tmp_path)
    assert as_json("checkpoint", "list", tmp_path) == []
    assert "holds no snapshots" in refused("checkpoint", "verify", tmp_path)
    assert "neither a savepoint nor snapshots" in refused("state", "list", tmp_path)


def test_a_checkpoint_or_operator_that_is_not_there(directory):
    """A missing checkpoint or operator is refused; the newest one does not replace it."""
    for verb in (["show", directory], ["verify", directory], ["diff", directory, 1]):
        ids = [9] if verb[0] == "diff" else ["--id", 9]
        assert "no checkpoint 9 in it; there are 1 to 2" in refused("checkpoint", *verb, *ids)
    for verb in ("show", "verify"):
        said = refused("checkpoint", verb, directory, "--operator", "totls")
        assert "there are: q1/totals" in said


def test_a_savepoint_of_a_savepoint_is_refused(directory, tmp_path):
    """A savepoint of a savepoint is refused with the alternative."""
    place = tmp_path / "savepoint"
    millpond("savepoint", "create", directory, place, "--snapshots", directory)
    said = refused("savepoint", "create", place, tmp_path / "new", "--snapshots", place)
    assert "it is a savepoint already" in said
    said = refused("savepoint", "create", directory, place, "--snapshots", directory)
    assert "it is not empty" in said
    said = refused("savepoint", "rekey", place, place / "new", "--max-parallelism", 64)
    assert "which this command reads" in said


def test_damaged_metadata_is_named(directory):
    """Listing names the damaged snapshot that it omits; if it is the only one, that is the error."""
    files = sorted(directory.rglob("*.snapshot"))
    files[0].write_text("{}")
    result = CliRunner().invoke(commands, ["checkpoint", "list", str(directory)])
    assert result.exit_code == 1
    assert files[0].name in result.stderr
    for file in files:
        file.write_text("{}")
    for call in (["checkpoint", "verify"], ["checkpoint", "show"], ["state", "list"]):
        result = CliRunner().invoke(commands, [*call, str(directory)])
        assert result.exit_code == 1
        assert any(file.name in result.output for file in files), result.output


LIMITED = {
    "dump": ("state", "dump", "{snapshots}", "total"),
    "export": ("state", "export", "{snapshots}", "total", "{new}.csv"),
    "edit": ("state", "edit", "{snapshots}", "total", "k1", "{new}", "--set", "1"),
    "verify": ("checkpoint", "verify", "{snapshots}"),
    "diff": ("checkpoint", "diff", "{snapshots}", "1", "2"),
    "create": ("savepoint", "create", "{snapshots}", "{new}", "--snapshots", "{snapshots}"),
    "dump of a savepoint": ("state", "dump", "{saved}", "total"),
    "seal": ("savepoint", "seal", "{saved}"),
    "rekey": ("savepoint", "rekey", "{saved}", "{new}", "--max-parallelism", "64"),
}


@pytest.mark.parametrize("call", LIMITED.values(), ids=LIMITED)
def test_the_configured_limits_bound_what_tools_read(directory, tmp_path, call):
    """Options restore.* in --config limit what commands read, and errors name them."""
    saved, config = tmp_path / "saved", tmp_path / "limits.toml"
    millpond("savepoint", "create", directory, saved, "--snapshots", directory)
    config.write_text("[millpond.restore]\nmax-unpacked-bytes = 1\nmax-file-bytes = 10\n")
    for number, given in enumerate(((), ("--config", config))):
        places = {"snapshots": directory, "saved": saved, "new": tmp_path / f"new-{number}"}
        arguments = [*given, *(part.format(**places) for part in call)]
        result = CliRunner().invoke(commands, [str(each) for each in arguments])
        assert result.exit_code == number, result.output
    assert "restore.max-" in result.output


def test_the_configured_number_of_states_bounds_what_tools_read(directory, tmp_path):
    """More states than restore.max-states are refused by the tools as by a job."""
    config = tmp_path / "limits.toml"
    config.write_text("[millpond.restore]\nmax-states = 1\n")
    said = refused("--config", config, "state", "dump", directory, "total")
    assert "restore.max-states" in said


def test_operators_and_states_are_removed_and_renamed(directory, tmp_path):
    """Each command writes another savepoint with the remaining operators and states, under the new names."""
    saved, *places = (tmp_path / name for name in ("saved", "sums", "amount", "basket", "none"))
    millpond("savepoint", "create", directory, saved, "--snapshots", directory)
    rows = as_json("savepoint", "rename-operator", saved, "totals", "sums", places[0])
    assert {row["operator"] for row in rows} == {"sums"}
    rows = as_json("savepoint", "rename-state", places[0], "total", "amount", places[1])
    assert {row["state"] for row in rows} == {"amount", "basket"}
    (row,) = as_json("savepoint", "remove-state", places[1], "basket", places[2])
    assert (row["operator"], row["state"], row["rows"]) == ("sums", "amount", 5)
    before = as_json("state", "get", saved, "total", "k1")
    assert as_json("state", "get", places[2], "amount", "k1")[0]["value"] == before[0]["value"]
    assert "there is none" in refused("savepoint", "remove-operator", places[2], "sums", places[3])
    assert not places[3].exists()


def test_names_that_a_savepoint_does_not_have(directory, tmp_path):
    """An unknown name is refused with the nearest one, and nothing is written."""
    saved, new = tmp_path / "saved", tmp_path / "new"
    millpond("savepoint", "create", directory, saved, "--snapshots", directory)
    for verb, hint in (
        (("remove-operator", saved, "totls"), "Did you mean 'totals'?"),
        (("rename-operator", saved, "totls", "sums"), "Did you mean 'totals'?"),
        (("remove-state", saved, "totl"), "Did you mean 'total'?"),
        (("rename-state", saved, "totl", "sum"), "Did you mean 'total'?"),
        (("rename-state", saved, "total", "basket"), "the name of no other state"),
    ):
        said = refused("savepoint", *verb, new)
        assert hint in said
        assert "?." not in said
        assert not new.exists()
    said = refused("savepoint", "remove-state", saved, "total", saved / "new")
    assert "which this command reads" in said


def ended(call, directory, stdout=None):
    """Run a command in its own process; return status and standard error."""
    code = "from millpond_command import main; main()"
    done = subprocess.run(
        ["/bin/sh", "-c", f'{call} "$0" -c "{code}" "$@"', sys.executable, *directory],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written(option):
    """On a full disk, help and version report that standard output cannot be written."""
    with Path("/dev/full").open("w") as full:
        told = ended("exec", [option], full)
    assert told == (1, "millpond: standard output: No space left on device.\n")


def test_a_closed_standard_output(directory):
    """With a closed standard output, a command that prints rows fails."""
    status, told = ended("exec >&-;", ["state", "dump", str(directory), "total"])
    assert (status, "standard output: it is closed" in told) == (1, True)


@pytest.mark.parametrize("verb", ["show", "seal"])
def test_what_is_no_savepoint(directory, verb):
    """A directory of snapshots is not reported as a damaged savepoint."""
    told = refused("savepoint", verb, directory)
    assert f"{directory}: it is not a savepoint, which has a file named savepoint.json" in told


@pytest.mark.parametrize(
    "call", [("run", ""), ("--config", "", "backends"), ("new-backend", "x1", "--directory", "")]
)
def test_an_empty_path_is_a_wrong_call(call):
    """An empty path, as from an unset variable, is a wrong call."""
    assert "the path is empty" in refused(*call, status=2)


def test_an_empty_function_is_a_wrong_call(directory):
    """An empty function is a wrong call, whatever the directory contains."""
    call = ("state", "check", directory, "--against", "")
    assert "the path is empty" in refused(*call, status=2)


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', "3", '{"savepoint": {}}'])
def test_metadata_that_is_other_json(tmp_path, text):
    """A `savepoint.json` of another program is refused with the expected content."""
    (tmp_path / "savepoint.json").write_text(text)
    for call in (("savepoint", "show"), ("savepoint", "seal"), ("state", "list")):
        said = refused(*call, tmp_path)
        assert "not a savepoint: expected a JSON object of 'savepoint' and 'sha256'." in said


def test_a_long_key_is_told_shortly(directory):
    """A long key without content is shortened in the message."""
    assert len(refused("state", "get", directory, "total", "x" * 5000)) < 600


@pytest.mark.parametrize("text", ["", "{}", "a\nb", "[1]", '"id"'])
def test_a_query_without_an_id(tmp_path, directory, text):
    """A damaged `metadata` of a query is reported with its path, without a traceback."""
    query = tmp_path / "query"
    query.mkdir()
    (query / "metadata").write_text(text)
    told = refused("rescale", query, "--parallelism", 2, "--snapshots", directory)
    assert f"{query}/metadata" in " ".join(told.split())
    assert "does not hold the id of a Spark query" in " ".join(told.split())


def test_a_place_as_spark_takes_it(tmp_path):
    """Spark gets a local directory as a plain path, because it decodes no URI."""
    place = tmp_path / "a b%20c"
    with click.Context(commands):
        assert spark_path(place.as_uri()) == spark_path(str(place)) == str(place)
        assert spark_path("memory:a%20b") == "memory:a%20b"


class Ending(click.Command):
    """A command of another distribution, which calls `sys.exit` with a text."""

    def invoke(self, context):
        sys.exit("there is no such table")


def test_a_text_at_the_end_is_a_failure():
    """A text given to `sys.exit` is printed, and the status is 1."""
    group = CommandGroup("other", commands={"end": Ending("end")})
    result = CliRunner().invoke(group, ["end"])
    assert (result.exit_code, result.stderr) == (1, "millpond: there is no such table\n")


def test_nothing_is_done_where_nothing_can_be_told(directory):
    """With standard output closed, a command is refused before it deletes anything."""
    before = sorted(path for path in directory.rglob("*"))
    call = [Path(sys.executable).parent / "millpond", "checkpoint", "gc", directory]
    told = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *map(str, call)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "standard output: it is closed" in told.stderr
    assert sorted(path for path in directory.rglob("*")) == before
