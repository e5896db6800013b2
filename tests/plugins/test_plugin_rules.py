"""A plugin that the rules forbid is neither imported nor called by any part of a job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins import recorder

pytestmark = pytest.mark.slow

ALLOWED = {"plugins.allow": "recorder, heap"}
BLOCKED = {
    "block": ({"plugins.block": "recorder"}, {}),
    "allow": ({"plugins.allow": "heap"}, {}),
    "environment": ({}, {"MILLPOND_PLUGINS_BLOCK": "recorder"}),
}
JOB = """
import sys
from pathlib import Path
import millpond as mp
from millpond.spark import configure, create_savepoint, key_by
from pyspark.sql import SparkSession

class Share(mp.KeyedProcessFunction):
    def open(self, context):
        self.share = context.get_state(mp.ValueStateDescriptor("share", float))
    def process_element(self, row, context):
        self.share.update(1.0)
        yield context.current_key,

root, log = Path(sys.argv[1]), Path(sys.argv[2])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "FATAL")
spark = configure(builder, parallelism=1, checkpoint_dir=(root / "snapshots").as_uri()).getOrCreate()

def run(name):
    folder = root / name
    spark.range(1).coalesce(1).write.parquet(str(folder / "in"))
    rows = spark.readStream.schema("id bigint").parquet(str(folder / "in"))
    out = key_by(rows, "id").process(Share(), output="id bigint", uid="share")
    out.writeStream.format("parquet").option("path", str(folder / "out")).option(
        "checkpointLocation", str(folder / "check")
    ).trigger(availableNow=True).start().awaitTermination()
    create_savepoint(spark, str(folder / "check"), folder / "saved")
    reader = spark.read.format("millpond").option("state", "share")
    if name == "blocked":
        reader = reader.option("plugins.block", "recorder")
    assert reader.load(str(folder / "saved")).count() == 1

spark.conf.set("spark.millpond.plugins.block", "recorder")
run("blocked")
print("BLOCKED", log.exists())
spark.conf.unset("spark.millpond.plugins.block")
spark.conf.set("spark.millpond.metrics.reporters", "recorder")
run("allowed")
print("ALLOWED", sorted(set(log.read_text().split())))
"""


@pytest.fixture
def environment(tmp_path):
    """Return the environment of a process that has the plugin installed, and its log."""
    site = recorder.install(tmp_path / "site")
    log = tmp_path / "log"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "RECORDER_LOG": str(log)}, log


def through_everything(environment, rules):
    """Run everything that may call plugins under some rules; return what was refused."""
    command = [sys.executable, str(Path(recorder.__file__)), json.dumps(rules)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_allowed_plugin_is_asked(environment):
    """All hooks of an allowed plugin are called, and everything that it provides works."""
    variables, log = environment
    assert through_everything(variables, ALLOWED) == {}
    assert set(log.read_text().split()) == {"import", "report", *recorder.HOOKS}


@pytest.mark.parametrize("how", BLOCKED)
def test_a_blocked_plugin_is_not_imported(environment, how):
    """A blocked plugin is not imported for any use of state, and its parts are refused."""
    rules, more = BLOCKED[how]
    variables, log = environment
    refused = through_everything({**variables, **more}, rules)
    assert set(refused) == recorder.OF_THE_PLUGIN
    for step in ("backend", "configured backend"):
        assert refused.pop(step) == "PluginBlockedError"
    assert set(refused.values()) == {"ConfigError"}
    assert not log.exists()


@pytest.mark.long
@pytest.mark.sample(3, of="Spark processes")
@pytest.mark.spark
def test_on_spark(environment, tmp_path):
    """A job can block the plugin in its workers; the next job of the same workers may use it."""
    variables, log = environment
    command = [sys.executable, "-c", JOB, str(tmp_path), str(log)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    lines = dict(
        line.split(" ", 1) for line in done.stdout.splitlines() if line[:2] in ("BL", "AL")
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines["BLOCKED"] == "False"
    unused = {"millpond_serializers"}
    assert lines["ALLOWED"] == str(sorted({"import", "report", *recorder.HOOKS} - unused))
