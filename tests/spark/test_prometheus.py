"""The endpoint for Prometheus: families, a scrape by a real Prometheus, alerts and the dashboard."""

import json
import logging
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import millpond as mp
import pytest
import yaml
from millpond import errors
from millpond.spark import key_by
from millpond_spark.metrics import batch_reports, prometheus
from millpond_spark.metrics.batch_metrics import SubtaskMetrics
from prometheus_client import generate_latest

from tests.spark.streaming import RUNNING, Files, Running, run

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATIENCE_S = 60
COMMON = {"subtask": "0", "backend": "heap", "source": "worker"}


def program(name):
    """Return the path of a program of Prometheus."""
    return shutil.which(name) or str(ROOT / ".tools" / "prometheus" / "usr" / "bin" / name)


def promtool(*arguments, **options):
    """Run promtool, and return its output; fail if it complains."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def free_port():
    """Return a port that is free now."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def text_of(*batches):
    """Return the text that the endpoint serves after some batches of one subtask."""
    families = prometheus.Families()
    for metrics in batches:
        subtask = SubtaskMetrics("totals", 0, 127, 1, {**COMMON, **metrics})
        families.record("orders", subtask)
    return generate_latest(families.registry).decode()


def value(text, family, **labels):
    """Return the value of the one series with these labels."""
    wanted = {f'{key}="{each}"' for key, each in labels.items()}
    (found,) = [
        float(rest)
        for line in text.splitlines()
        for series, _, rest in [line.rpartition(" ")]
        if series.partition("{")[0] == family
        and wanted <= set(series[:-1].partition("{")[2].split(","))
    ]
    return found


def test_counters_add_up_and_gauges_have_the_last_value():
    """A counter contains all batches, a histogram their times, a gauge the last batch."""
    batch = {
        "rows_in": 3,
        "user.gone": -1,
        "user.seen": 2,
        "snapshot_ms": 20.0,
        "snapshot_bytes": 70,
    }
    text = text_of(batch, {**batch, "snapshot_bytes": 50})
    assert value(text, "millpond_rows_in_total", subtask="0", backend="heap") == 6
    assert value(text, "millpond_snapshot_seconds_sum", operator="totals") == pytest.approx(0.04)
    assert value(text, "millpond_snapshot_seconds_count", query="orders") == 2
    assert value(text, "millpond_snapshot_bytes") == 50
    assert value(text, "millpond_user_total", name="seen") == 4
    assert value(text, "millpond_user_value", name="gone") == -1


def test_parts_of_names_become_labels():
    """States, operations, quantiles, qualities, places and sources are labels."""
    text = text_of({
        "spent.value": 4, "spent.value_ns.p99": 1200.0, "spent.update_bytes.max": 9,
        "spent.entries_estimate": 7, "a.b.keys": 5, "restored_bytes.local": 8, "source": "snapshot",
        "user.numDeadLetters": 1, "user.refused": 2, "native_live_bytes": 3,
        "spent.restored_bytes": 6,
    })  # fmt: skip
    assert value(text, "millpond_state_calls_total", state="spent", operation="value") == 4
    latency = value(text, "millpond_state_access_seconds", operation="value", statistic="p99")
    assert latency == pytest.approx(1.2e-6)
    assert value(text, "millpond_state_access_bytes", operation="update", statistic="max") == 9
    assert value(text, "millpond_state_entries", state="spent", quality="estimate") == 7
    assert value(text, "millpond_state_keys", state="a.b", quality="exact") == 5
    assert value(text, "millpond_restored_bytes_total", place="local") == 8
    assert value(text, "millpond_restores_total", source="snapshot") == 1
    assert value(text, "millpond_dead_letters_total") == 1
    assert value(text, "millpond_user_value", name="refused") == 2
    assert value(text, "millpond_user_total", name="refused") == 2
    assert value(text, "millpond_native_value", name="live_bytes") == 3
    assert value(text, "millpond_state_restored_bytes_total", state="spent") == 6


def test_gauges_of_an_ended_query_are_removed():
    """A query that has ended keeps its counters, and no other query loses a gauge."""
    families = prometheus.Families()
    for query in ("ended", "other"):
        metrics = {**COMMON, "rows_in": 1, "snapshot_bytes": 2, "v.keys": 3}
        families.record(query, SubtaskMetrics("totals", 0, 127, 1, metrics))
    families.forget_gauges("ended")
    text = generate_latest(families.registry).decode()
    assert value(text, "millpond_rows_in_total", query="ended") == 1
    assert value(text, "millpond_snapshot_bytes") == 2
    assert value(text, "millpond_state_keys", query="other") == 3


def test_promtool_accepts_the_metrics():
    """Promtool finds no fault in names, help texts and types."""
    names = ["rows_in", "open_ms", "snapshot_bytes", "v.keys", "v.value_ns.p50", "v.get", "user.x"]
    promtool("check", "metrics", input=text_of(dict.fromkeys(names, 1)))


def test_each_metric_is_documented():
    """The page on Prometheus has a row for each metric of the endpoint."""
    page = (ROOT / "docs" / "how-to" / "prometheus.md").read_text()
    served = prometheus.Families().registry.collect()
    names = [each.name + ("_total" if each.type == "counter" else "") for each in served]
    assert len(names) > len(prometheus.FAMILIES)
    assert [name for name in names if f"| `{name}` |" not in page] == []


def served_names():
    """Return the names of all series that the endpoint may serve."""
    families = prometheus.Families()
    found = set()
    for metric in families.registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        found |= {metric.name + end for end in ends.get(metric.type, [""])}
    return found


def test_the_alerts(tmp_path):
    """Promtool accepts the alerts and their tests, each alert is tested, and has a section."""
    folder = DEPLOY / "prometheus"
    promtool("check", "rules", folder / "alerts.yml")
    promtool("test", "rules", folder / "alerts_test.yml")
    rules = yaml.safe_load((folder / "alerts.yml").read_text())["groups"][0]["rules"]
    tests = (folder / "alerts_test.yml").read_text()
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text()
    for rule in rules:
        assert f"alertname: {rule['alert']}\n" in tests
        assert f"## {rule['alert']}\n" in page
        assert set(re.findall(r"millpond_\w+", rule["expr"])) <= served_names()


def test_the_dashboard():
    """Each expression of the dashboard is valid and names metrics that exist."""
    dashboard = json.loads((DEPLOY / "grafana" / "millpond.json").read_text())
    expressions = [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    for expression in expressions:
        assert set(re.findall(r"millpond_\w+", expression)) <= served_names()
    rules = [
        {"record": f"panel:{at}", "expr": expression.replace("$__rate_interval", "1m")}
        for at, expression in enumerate(expressions)
    ]
    written = yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    promtool("check", "rules", "/dev/stdin", input=written)


class Scraper:
    """A Prometheus server that scrapes one endpoint every 200 ms."""

    def __init__(self, folder, target):
        self.port = free_port()
        scrape = {"job_name": "millpond", "static_configs": [{"targets": [target]}]}
        config = folder / "prometheus.yml"
        every = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
        config.write_text(yaml.safe_dump({"global": every, "scrape_configs": [scrape]}))
        self.log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            [
                program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def wait_for(self, query, wanted):
        """Ask until the query's only result has a value; return its labels."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?query={urllib.parse.quote(query)}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(url) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                found = []
            if len(found) == 1 and wanted(float(found[0]["value"][1])):
                return found[0]["metric"]
            assert time.monotonic() < deadline, (query, found)

    def close(self):
        """Stop the server."""
        self.process.kill()
        self.process.wait()
        self.log.close()


def listeners_done(spark):
    """Wait until Spark's listeners have got all events."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


@pytest.fixture
def scraped(spark, job_conf, tmp_path):
    """A configured port, and the Prometheus that scrapes it."""
    port = free_port()
    job_conf(state_backend="rocksdb", parallelism=2, **{"metrics_prometheus-port": port})
    scraper = Scraper(tmp_path, f"127.0.0.1:{port}")
    yield scraper
    scraper.close()
    added = batch_reports._reports.pop(batch_reports.internals.session_id(spark))
    spark.streams.removeListener(added)


class Failing(mp.KeyedProcessFunction):
    """A function that fails."""

    def process_element(self, row, context):
        """Fail."""
        raise ValueError(row.n)


def test_prometheus_scrapes_a_query(spark, scraped, tmp_path):
    """PromQL sees the rows of all batches, the sizes and the end of a query, and counts its failure."""
    files = Files(spark, tmp_path / "in")
    for _ in range(3):
        files.add(*((key, 1) for key in "abcdefgh"))
    totals = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="totals")
    writer = totals.writeStream.queryName("orders").format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "query"))
    query = writer.start()
    rows = 'sum by (query, operator) (millpond_rows_in_total{backend="rocksdb"})'
    found = scraped.wait_for(rows, lambda value: value == 24)
    assert found == {"query": "orders", "operator": "totals"}
    files.add(*((key, 1) for key in "abcd"))
    scraped.wait_for("sum(rate(millpond_rows_in_total[10s])) > 0", lambda value: value > 0)
    scraped.wait_for("millpond_batches_total", lambda value: value == 4)
    scraped.wait_for('count(millpond_state_entries{state="sum"})', lambda value: value == 2)
    scraped.wait_for("millpond_query_running", lambda value: value == 1)
    query.stop()
    scraped.wait_for("millpond_query_running", lambda value: value == 0)
    failing = key_by(files.stream(), "k").process(Failing(), output="k string", uid="failing")
    with pytest.raises(Exception, match="failing"):
        run(failing, tmp_path, name="broken")
    scraped.wait_for("sum(millpond_query_failures_total)", lambda value: value == 1)


def test_a_port_in_use_is_refused(spark, job_conf, tmp_path):
    """The error names the option, the address and the cure."""
    files = Files(spark, tmp_path / "in")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        job_conf(state_backend="heap", parallelism=2, **{"metrics_prometheus-port": port})
        with pytest.raises(
            errors.ConfigError, match=r"metrics.prometheus-port: cannot listen on 127.0.0.1:"
        ):
            key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="totals")


def test_each_batch_has_a_line_in_the_log(spark, job_conf, tmp_path, caplog):
    """At level INFO the log has a line for each operator and batch; at WARNING there is no listener."""
    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in")
    files.add(("a", 1), ("b", 2))
    session = batch_reports.internals.session_id(spark)
    key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="unlogged")
    assert session not in batch_reports._reports
    with caplog.at_level(logging.INFO, "millpond.batches"):
        totals = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="logged")
        run(totals, tmp_path)
        listeners_done(spark)
    spark.streams.removeListener(batch_reports._reports.pop(session))
    (line,) = [each.message for each in caplog.records if each.name == "millpond.batches"]
    fields = dict(each.split("=") for each in line.split())
    assert fields["operator"] == "logged"
    assert (fields["batch"], fields["rows_in"], fields["rows_out"]) == ("0", "2", "2")
    assert {"process_ms", "snapshot_ms", "snapshot_bytes"} <= set(fields)
