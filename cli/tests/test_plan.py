"""``millpond plan``: the model's figures, their order, and the command."""

import json
import math
import re
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond.errors import ConfigError
from millpond_cli.main import commands
from millpond_cli.plan import figures
from millpond_cli.sizing import constants
from millpond_cli.sizing.constants import Constant
from millpond_cli.sizing.model import Workload, file_requests, plan_job

DOCS = Path(__file__).parents[2] / "docs"
BENCHMARKS = DOCS / "quality" / "benchmarks.md"
PAGE = (DOCS / "how-to" / "size.md").read_text()
CALL = ["plan", "--rate", "50000", "--keys", "1e7", "--bytes-per-key", "200", "--batch", "10"]
JOB = Workload(rate=50_000, keys=10_000_000, bytes_per_key=200, batch=10)

amounts = st.floats(1, 1e9)
workloads = st.builds(
    Workload,
    rate=st.floats(1, 1e6),
    keys=amounts,
    bytes_per_key=st.floats(1, 1e5),
    batch=st.floats(5, 3600),
    backend=st.sampled_from(["heap", "lmdb", "rocksdb"]),
    parallelism=st.sampled_from([1, 2, 7, 64, 300]),
)


def run(*arguments, status=0):
    """Run the command; return its result."""
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"rows": 500_000, "key_groups": 128}),
        ({"parallelism": 11}, {"parallelism": 11, "state_partitions": 12}),
        ({"parallelism": 80}, {"key_groups": 1024}),
        ({"parallelism": 32_768}, {"key_groups": 32_768}),
        ({"rate": 10}, {"parallelism": 1, "state_partitions": 1}),
        ({"backend": "heap"}, {"local_bytes": 0}),
        ({"touched": 1e9}, {"touched": 500_000}),
        ({"touched": 10}, {"touched": 10, "cycle": 101}),
        ({"keys": 3}, {"touched": 3, "cycle": 5}),
        ({"compression": 0.5}, {"base_bytes": 1e9}),
        ({"parallelism": 4, "compression": 0.5}, {"base_bytes": 250e6}),
    ],
)
def test_figures(change, expected):
    """A change of the workload has the expected figures."""
    plan = attrs.asdict(plan_job(attrs.evolve(JOB, **change)))
    for name, value in expected.items():
        assert plan[name] == pytest.approx(value, rel=1e-6), name


@settings(max_examples=200, deadline=None)
@given(workloads, st.floats(1, 100))
@pytest.mark.parametrize("name", ["rate", "keys", "bytes_per_key"])
def test_a_larger_job_needs_no_less(name, workload, times):
    """With more rows, keys or bytes, no figure becomes smaller, except rates and rhythms."""
    larger = attrs.evolve(workload, **{name: getattr(workload, name) * times})
    small, large = (attrs.asdict(plan_job(each)) for each in (workload, larger))
    wanted = ["worker_bytes", "local_bytes", "written_per_day", "batch_seconds", "stored_bytes"]
    if name != "rate":
        wanted.append("restore_seconds")
    for figure in wanted:
        assert large[figure] >= small[figure] * (1 - 1e-9), figure


@settings(max_examples=200, deadline=None)
@given(workloads, st.floats(2, 10))
def test_a_longer_batch_costs_no_more(workload, times):
    """With twice the time between two batches or more, a day has no more requests or work.

    With a little more time it may have more requests, if a file becomes larger than 10 MB.
    """
    longer = attrs.evolve(workload, batch=workload.batch * times)
    short, long = plan_job(workload), plan_job(longer)
    assert long.requests_per_day <= short.requests_per_day * (1 + 1e-9)
    assert long.max_rate >= short.max_rate * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(workloads, st.floats(1, 100))
def test_more_subtasks_have_less_each(workload, times):
    """More subtasks share the state, and the calculated number is enough for the rows."""
    most = min(int(workload.parallelism * times), 32_768)
    few, many = plan_job(workload), plan_job(attrs.evolve(workload, parallelism=most))
    assert many.restore_seconds <= few.restore_seconds * (1 + 1e-9)
    assert many.worker_bytes <= few.worker_bytes * (1 + 1e-9)
    assert many.local_bytes == few.local_bytes
    free = plan_job(attrs.evolve(workload, parallelism=None))
    assert free.batch_seconds <= 0.6 * workload.batch
    assert free.parallelism == free.state_partitions
    assert all(math.isfinite(value) for value in attrs.astuple(free))


def test_each_constant_has_a_source():
    """Each constant names a section of the benchmarks page."""
    headings = set(re.findall(r"^## (.*)$", BENCHMARKS.read_text(), re.MULTILINE))
    found = []
    for value in vars(constants).values():
        found += value.values() if isinstance(value, dict) else [value]
    measured = [each for each in found if isinstance(each, Constant)]
    assert len(measured) > 10
    assert {each.section for each in measured} <= headings
    assert all(re.fullmatch(r"2026-\d\d-\d\d", each.day) for each in measured)


def test_the_published_measurements_are_near_their_plans():
    """The published measurements are within 30 % of their plans."""
    section = BENCHMARKS.read_text().partition("## Plan and measurement\n")[2].partition("\n## ")[0]
    quotients = [float(each) for each in re.findall(r"\| (\d\.\d\d) \|$", section, re.MULTILINE)]
    assert len(quotients) >= 25
    assert all(0.7 <= each <= 1.3 for each in quotients)


def test_the_table_has_a_reason_for_each_figure():
    """The command prints each figure with its reason, and the same figures as JSON."""
    printed = run(*CALL).stdout
    for row in figures(JOB, plan_job(JOB)):
        assert all(len(value) > 0 for value in row.values())
        assert row["figure"] in printed
        assert row["reason"] in printed
    made = json.loads(run(*CALL, "--json").stdout)
    assert made["plan"] == attrs.asdict(plan_job(JOB))
    assert made["workload"]["rate"] == JOB.rate


@pytest.mark.parametrize("speed", [1, 3])
@pytest.mark.parametrize("rate", [100, 50_000])
def test_the_reasons_lead_to_the_figures(rate, speed):
    """A reader can calculate the figures from the numbers in their reasons."""
    job = attrs.evolve(JOB, rate=rate, core_speed=speed)
    plan = plan_job(job)
    whys = {row["figure"]: row["reason"].replace(",", "") for row in figures(job, plan)}
    batches, write, deletion = map(float, re.findall(r"[\d.]*\d", whys["requests per day"])[:3])
    assert plan.requests_per_day == pytest.approx(batches * (write + deletion), rel=0.01)
    driver, subtask, rows, each = map(float, re.findall(r"[\d.]*\d", whys["time of a batch"]))
    seconds = (driver + subtask) / 1e3 + rows * each / 1e6
    assert plan.batch_seconds == pytest.approx(seconds, rel=0.01)
    read, speed, entries, each = map(float, re.findall(r"[\d.]*\d", whys["longest restore"]))
    seconds = read * 1e3 / speed + entries * each / 1e6
    assert plan.restore_seconds == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(
    ("parallelism", "said"),
    [(3276, "ten per"), (3277, "9 or 10 per"), (20_000, "1 or 2 per"), (32_768, "be, 1 per")],
)
def test_the_reason_for_the_key_groups(parallelism, said):
    """If there cannot be ten key groups per subtask, the reason says how many there are."""
    job = attrs.evolve(JOB, parallelism=parallelism)
    (reason,) = (
        row["reason"] for row in figures(job, plan_job(job)) if row["figure"] == "key groups"
    )
    assert f"{said} subtask" in reason


def test_large_files_take_more_requests():
    """S3 gets a file of 72 MB in 7 parts, between 2 requests; `tests/checkpoint/test_s3.py` counts."""
    assert file_requests(10e6, 10e6, 83) == 1
    assert file_requests(72e6, 72e6, 83) == 9
    assert file_requests(10e6, 72e6, 4) == (3 * 1 + 9) / 4


def test_zero_for_the_function():
    """The default of ``--function-us``, 0, may be given."""
    assert run(*CALL, "--function-us", "0").stdout == run(*CALL).stdout


def test_too_few_subtasks():
    """If the given subtasks are too few, the status is 1 and the plan is still printed."""
    result = run(*CALL, "--parallelism", "1", "--rate", "1e6", status=1)
    assert "falls behind" in result.stderr
    assert "highest rate" in result.stdout


def test_too_large_a_file():
    """The command warns if S3 refuses the file of a whole state, and names enough subtasks."""
    large = [*CALL, "--keys", "1e10"]
    found = run(*large).stderr
    assert "too large for a file on S3: pyarrow can write 105 GB" in found
    (wanted,) = re.findall(r"--parallelism (\d+)", found)
    assert not run(*large, "--parallelism", wanted).stderr
    assert run(*large, "--parallelism", str(int(wanted) - 1)).stderr


def test_no_number_of_subtasks_is_enough():
    """If no parallelism is enough, the error says how long the best one takes."""
    with pytest.raises(ConfigError, match="too short for 1,000,000,000 rows"):
        plan_job(attrs.evolve(JOB, rate=1e11, batch=0.01))
    assert "Choose a longer time" in run(*CALL, "--rate", "1e12", status=1).stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--rate", "0"),
        ("--rate", "-5"),
        ("--rate", "many"),
        ("--keys", "1e300"),
        ("--batch", "0"),
        ("--batch", "10s"),
        ("--bytes-per-key", "0"),
        ("--bytes-per-key", "2tb"),
        ("--bytes-per-key", "9" * 5000),
        ("--backend", "redis"),
        ("--parallelism", "0"),
        ("--download", "-1"),
    ],
)
def test_odd_values_are_refused(option, value):
    """An odd value is refused with the name of its option."""
    assert option in run(*CALL, option, value, status=2).stderr


@pytest.mark.parametrize(
    ("command", "printed"),
    re.findall(
        r"^    millpond (plan [^\n]*)$[^`]*```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL
    ),
)
def test_the_page_shows_what_the_command_prints(command, printed):
    """The tables of the page are the output of the commands above them."""
    assert run(*command.split()).stdout == printed


def test_the_page_names_each_option():
    """The page describes each option of the command."""
    options = {each.opts[0] for each in commands.get_command(None, "plan").params}
    assert {option for option in options if f"`{option}`" not in PAGE} == set()
