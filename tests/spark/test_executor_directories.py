"""Local copies are in the directories that Spark, YARN or Kubernetes give an executor."""

import json

import pytest
from millpond.keygroups import KeyGroupRange
from millpond_conformance.processes import in_a_child
from millpond_spark.worker.local_copies import (
    claimed_directory,
    place_of_copy,
    remove_earlier_copies,
)

from tests.spark.retail_runs import PATIENCE_S

SESSION = """
import json, sys
from millpond_spark.worker.local_copies import place_of_copy
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
session = builder.getOrCreate()

def places(_):
    return [str(place_of_copy(f"query/uid/copy-{number}")) for number in range(20)]

print(json.dumps(session.sparkContext.parallelize([0], 1).map(places).first()))
session.stop()
"""


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("given_by", ["spark.local.dir", "SPARK_LOCAL_DIRS", "LOCAL_DIRS"])
def test_all_directories_of_an_executor_are_used(tmp_path, given_by):
    """Local directories come from the configuration, from the environment as on Kubernetes, and from YARN."""
    both = [tmp_path / "one", tmp_path / "two"]
    named = ",".join(map(str, both))
    variables = {"LOCAL_DIRS": {"CONTAINER_ID": "container_1"}}.get(given_by, {})
    configured = {given_by: named} if given_by == "spark.local.dir" else {}
    variables = variables if configured else {**variables, given_by: named}
    child = in_a_child(SESSION, json.dumps(configured), variables=variables, timeout=PATIENCE_S)
    assert child.returncode == 0, child.stderr
    places = json.loads(child.stdout.splitlines()[-1])
    found = [sum(place.startswith(f"{root}/") for place in places) for root in both]
    assert sum(found) == len(places)
    assert min(found) > 0


def test_copies_of_an_earlier_division_are_removed(tmp_path, monkeypatch):
    """After a rescale the copies of the old subtasks are deleted, unless a task still uses them."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/one,{tmp_path}/two")
    names = ["kg-0-63-lmdb", "kg-64-127-lmdb", "kg-0-42-lmdb"]
    places = {name: place_of_copy(f"query/uid/{name}") for name in names}
    other = place_of_copy("query/other/kg-0-63-lmdb")
    divisions = [KeyGroupRange(0, 42), KeyGroupRange(43, 85), KeyGroupRange(86, 127)]
    with claimed_directory(places["kg-64-127-lmdb"]):
        remove_earlier_copies("query/uid", divisions)
    assert [name for name in names if places[name].exists()] == ["kg-64-127-lmdb", "kg-0-42-lmdb"]
    assert other.exists()
    remove_earlier_copies("query/uid", divisions)
    assert [name for name in names if places[name].exists()] == ["kg-0-42-lmdb"]


def test_a_private_directory_in_use_is_not_removed(tmp_path, monkeypatch):
    """A rescale leaves a private directory that a task uses, and all of its files."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    place = place_of_copy("query/uid/kg-0-63-lmdb")
    shared = claimed_directory(place)
    shared.__enter__()
    with claimed_directory(place) as (private, _):
        (private / "lock.mdb").write_bytes(b"readers")
        shared.__exit__(None, None, None)
        remove_earlier_copies("query/uid", [KeyGroupRange(0, 127)])
        assert (private / "lock.mdb").read_bytes() == b"readers"
    remove_earlier_copies("query/uid", [KeyGroupRange(0, 127)])
    assert not place.exists()
