"""``millpond report``: figures, warnings, and a page that a browser shows."""

import json
from datetime import timedelta

import attrs
import click
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond_cli.main import commands
from millpond_cli.output import size_text
from millpond_cli.report import advice
from millpond_cli.report.history import (
    BatchFigures,
    StaleFiles,
    StatesAt,
    checkpoint_sizes,
    earlier_states,
)
from millpond_cli.report.page import duration_text
from millpond_cli.report.state_figures import (
    LargeKey,
    OperatorFigures,
    SizeFigures,
    StateFigures,
    TimerFigures,
)
from millpond_cli.targets import catalog_of, stored_operators
from selenium.webdriver.common.by import By

from tests.browser import open_browser

HOUR = 3_600_000
NOW = 1_800_000_000_000
ODD = "<img src=x onerror=document.title='hacked'>"
SEEN = mp.ListStateDescriptor("seen", str)
SEEN.enable_time_to_live(mp.StateTtlConfig(timedelta(hours=1)))
BASKET = mp.MapStateDescriptor(f"basket {ODD}", str, int)


class Reminding(mp.KeyedProcessFunction):
    """A function with a timer of processing time and of event time per key."""

    def open(self, context):
        """Register the states."""
        self.basket = context.get_map_state(BASKET)
        self.seen = context.get_list_state(SEEN)

    def process_element(self, row, context):
        """Write both states, and register timers."""
        self.basket.put(row.item, 1)
        self.seen.add(row.item)
        context.timer_service().register_processing_time_timer(NOW + HOUR)
        context.timer_service().register_event_time_timer(5)


def call(*arguments, status=0):
    """Run the command, and return its result."""
    result = CliRunner().invoke(commands, ["report", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


def figures(*arguments):
    """Return the report as JSON."""
    return json.loads(call(*arguments, "--json").stdout)


@pytest.fixture
def directory(tmp_path):
    """A checkpoint directory with six checkpoints of two subtasks; the key `ODD` is large."""
    folder = tmp_path / "checkpoints"
    storage = mp.checkpoint_storage(folder.as_uri())
    for index in range(2):
        groups = mp.key_group_range(128, 2, index)
        clock = mp.ManualClock(NOW)
        options = {"place": "q1/totals", "key_group_range": groups, "clock": clock}
        with mp.open_keyed_backend("heap", key_type=str, **options) as backend:
            for checkpoint in range(1, 7):
                for number in range(20 * checkpoint):
                    write(backend, f"k{number}", 1)
                write(backend, ODD, 2000 * checkpoint)
                backend.snapshot(checkpoint, storage).result()
                backend.notify_checkpoint_complete(checkpoint)
    return folder


def write(backend, key, entries):
    """Write entries of a map, and an element of a list, if the key belongs to the backend."""
    if mp.assign_to_key_group(key, 128) in backend.key_group_range:
        backend.set_current_key(key)
        basket = backend.get_partitioned_state(BASKET)
        for number in range(entries):
            basket.put(f"item-{number:06}", number)
        backend.get_partitioned_state(SEEN).update(["x"])


def test_the_figures_of_a_checkpoint_directory(directory):
    """Rows, keys, expired rows, subtasks, the largest key and the sizes of checkpoints are exact."""
    (operator,) = figures(directory)["operators"]
    found = operator["figures"]
    states = {each["name"]: each for each in found["states"]}
    basket, seen = states[BASKET.name], states["seen"]
    assert (basket["rows"], basket["keys"], basket["expired"]) == (120 + 12_000, 121, 0)
    assert (seen["rows"], seen["keys"], seen["ttl_ms"]) == (121, 121, HOUR)
    largest = basket["largest"][0]
    assert (largest["key"], largest["rows"]) == (repr(ODD), 12_000)
    assert [each["first_group"] for each in found["subtasks"]] == [0, 64]
    for part in ("rows", "bytes"):
        total = basket[part] + seen[part]
        assert sum(each[part] for each in found["subtasks"]) == total
        assert sum(each[part] for each in found["groups"].values()) == total
    assert [each["checkpoint_id"] for each in operator["sizes"]] == [1, 2, 3, 4, 5, 6]
    assert operator["sizes"][-1]["bytes"] == sum(s["stored_bytes"] for s in found["subtasks"])
    names = [f"k{number}" for number in range(120)] + [ODD]
    groups = [mp.assign_to_key_group(name, 128) for name in names]
    assert found["groups"].keys() == {str(group) for group in groups}
    heaviest = max(found["groups"], key=lambda each: found["groups"][each]["bytes"])
    assert int(heaviest) == largest["key_group"] == groups[-1]
    for state in (BASKET.name, "seen"):
        keys = [each["states"][state]["keys"] for each in found["subtasks"]]
        assert keys == [sum(group < 64 for group in groups), sum(group >= 64 for group in groups)]
    warned = " ".join(each["what"] for each in operator["advice"])
    assert f"The key {ODD!r} has 100% of the bytes" in warned


@pytest.mark.parametrize(
    ("earlier", "ids"), [(0, [6]), (1, [1, 6]), (3, [1, 2, 4, 6]), (100, [1, 2, 3, 4, 5, 6])]
)
def test_the_growth_of_each_state(directory, earlier, ids):
    """The sizes of the states at earlier checkpoints are exact, and spread over the retained ones."""
    (operator,) = figures(directory, "--earlier", earlier)["operators"]
    assert [each["checkpoint_id"] for each in operator["growth"]] == ids
    for each in operator["growth"]:
        keys = 20 * each["checkpoint_id"]
        basket, seen = each["states"][BASKET.name], each["states"]["seen"]
        assert (basket["keys"], basket["rows"]) == (keys + 1, 101 * keys)
        assert (seen["keys"], seen["rows"]) == (keys + 1, keys + 1)
    now = {each["name"]: each["bytes"] for each in operator["figures"]["states"]}
    assert {name: each["bytes"] for name, each in operator["growth"][-1]["states"].items()} == now


def test_a_checkpoint_that_is_deleted_while_it_is_read(directory):
    """If the query deletes an earlier checkpoint in the meantime, it is left out."""
    with click.Context(commands):
        (stored,), catalog = stored_operators(str(directory)), catalog_of(str(directory))
    sizes = checkpoint_sizes(catalog, stored.operator)
    for path in directory.glob("q1/totals/*/3-*.snapshot"):
        path.unlink()
    found = [each.checkpoint_id for each in earlier_states(catalog, stored, sizes, 5)]
    assert found == [1, 2]


def test_the_figures_of_a_savepoint(tmp_path):
    """A savepoint has no subtasks and no history; timers have their due times."""
    harness = mp.testing.KeyedOperatorHarness(Reminding(), key="k", clock_ms=NOW)
    with harness:
        for number in range(3):
            harness.process({"k": f"k{number}", "item": "a"}, 1)
        harness.savepoint(str(tmp_path / "savepoint"))
    report = figures(tmp_path / "savepoint")
    (operator,) = report["operators"]
    assert (report["kind"], operator["sizes"], operator["batches"]) == ("savepoint", [], [])
    assert operator["growth"] == []
    timers = operator["figures"]["timers"]
    ends = {(each["first"], each["last"], sum(each["counts"])) for each in timers.values()}
    assert ends == {(5, 5, 3), (NOW + HOUR, NOW + HOUR, 3)}
    timer = next(each for each in operator["figures"]["states"] if each["keys"] is None)
    assert (timer["rows"], timer["largest"]) == (3, [])


def test_a_table_without_a_page(directory):
    """Without -o and --json, the command prints the states and the warnings."""
    printed = call(directory).stdout
    assert "seen" in printed
    assert "Warning: The key" in printed


def test_the_page_in_a_browser(directory, tmp_path):
    """The page runs nothing, loads nothing, fits a phone, and is readable in the light and the dark."""
    page = tmp_path / "report.html"
    call(directory, "-o", page)
    with open_browser(tmp_path / "profile") as browser:
        browser.get(page.as_uri())
        assert browser.title == f"State in {directory}"
        text = browser.find_element(By.TAG_NAME, "body").text
        assert BASKET.name in text
        assert repr(ODD) in text
        assert browser.find_elements(By.TAG_NAME, "img") == []
        assert len(browser.find_elements(By.TAG_NAME, "svg")) == 4
        assert "Growth from checkpoint 1 to 6" in text
        assert "Heaviest key groups" in text
        assert "keys of seen" in text
        assert color_of_text(browser, "light") == "rgb(0, 0, 0)"
        assert color_of_text(browser, "dark") == "rgb(255, 255, 255)"
        phone = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        assert browser.execute_script("return document.documentElement.scrollWidth") == 400
        assert browser.get_log("browser") == []


def color_of_text(browser, mode):
    """Return the color of the texts for users of a light or a dark mode."""
    feature = {"name": "prefers-color-scheme", "value": mode}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    return browser.execute_script("return getComputedStyle(document.documentElement).color")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere", "--json"], 1, "there is no such directory"),
        ([".", "--json"], 1, "neither a savepoint nor snapshots"),
        ([".", "-o", ""], 2, "the path is empty"),
        (["."], 1, "neither a savepoint nor snapshots"),
        (["", "--json"], 2, "the path is empty"),
    ],
)
def test_wrong_calls(tmp_path, monkeypatch, arguments, status, said):
    """Each wrong call is refused with the reason."""
    monkeypatch.chdir(tmp_path)
    assert said in call(*arguments, status=status).stderr


def test_the_page_is_not_written_into_the_directory(directory):
    """A page within the directory that is read is refused, and nothing is written."""
    target = directory / "q1" / "report.html"
    assert "lies in" in call(directory, "-o", target, status=1).stderr
    assert not target.exists()


def test_a_damaged_file_is_named(directory):
    """If a file of the newest checkpoint is damaged, the error names it."""
    damaged = max(directory.glob("q1/totals/*/*.snapshot"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert damaged.name in call(directory, "--json", status=1).stderr


BATCH = BatchFigures(1, 4000, 2500, 10, 1.0, 50.0, 20.0, 100, {"worker": 2}, 0)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([BATCH, BATCH], []),
        ([BATCH, attrs.evolve(BATCH, failed_attempts=2)], ["2 attempts of tasks failed"]),
        ([attrs.evolve(BATCH, sources={"snapshot": 2}), BATCH], []),
        (
            [BATCH, attrs.evolve(BATCH, sources={"snapshot": 1, "worker": 1})],
            ["in 1 of the last 2"],
        ),
        ([attrs.evolve(BATCH, snapshot_ms=2000.0)], ["more time on snapshots"]),
        ([attrs.evolve(BATCH, sources={"worker": 4})], ["gets 2.5 times the mean"]),
        ([attrs.evolve(BATCH, sources={"worker": 4}, rows_in=40, most_rows_in=40)], []),
    ],
)
def test_advice_on_batches(batches, said):
    """Failed attempts, restores, slow snapshots and skewed rows are warned of."""
    found = [each.what for each in advice.batch_advice(batches)]
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


def at(checkpoint, **states):
    """Return the sizes of states at a checkpoint, from their keys and bytes."""
    sizes = {
        name: SizeFigures(rows=5, keys=keys, bytes=size) for name, (keys, size) in states.items()
    }
    return StatesAt(checkpoint, sizes)


MB = 1 << 20


@pytest.mark.parametrize(
    ("ttl", "before", "after", "said"),
    [
        (None, (10, 2 * MB), (40, 8 * MB), "has 40 keys instead of 10. No time to live"),
        (HOUR, (10, 2 * MB), (40, 8 * MB), "has 40 keys instead of 10. It grows until"),
        (None, (8, 2 * MB), (8, 8 * MB), "has 1,048,576 bytes on average instead of 262,144"),
        (None, (None, 2 * MB), (None, 8 * MB), "has 5 timers instead of 5."),
    ],
)
def test_advice_on_growth(ttl, before, after, said):
    """A state that grows is named with the reason; little growth and few checkpoints are not."""
    state = StateFigures("grown", "value", "int", ttl, keys=5, bytes=6 * MB)
    operator = OperatorFigures("q/o", 9, 128, "str", [state], {}, [], {}, {})
    growth = [at(2, grown=before), at(5, grown=before), at(9, grown=after)]
    (found,) = advice.state_advice(operator, growth)
    assert "'grown' has grown from 2,097,152 to 8,388,608 bytes" in found.what
    assert "between the checkpoints 2 and 9" in found.what
    assert said in found.cure
    for little in ([at(2, grown=after), growth[-1]], growth[1:], growth[-1:], []):
        assert [*advice.state_advice(operator, little)] == []


def test_advice_on_growth_of_one_key():
    """If one key has more than half of the growth, it is named."""
    state = StateFigures("grown", "value", "int", None, keys=40, bytes=8 * MB)
    operator = OperatorFigures("q/o", 9, 128, "str", [state], {}, [], {}, {})
    for size, said in ((3 * MB, "40 keys"), (4 * MB, "the key 'ann', which has 4,194,304 bytes")):
        state.largest = [LargeKey("'ann'", 3, 5, size)]
        growth = [at(1, grown=(10, 2 * MB)), at(9, grown=(40, 8 * MB))]
        *_, found = advice.state_advice(operator, growth)
        assert said in found.cure


def test_advice_on_a_new_state():
    """A state that an earlier checkpoint does not have has grown from nothing."""
    state = StateFigures("new", "value", "int", None, keys=5, bytes=6 * MB)
    operator = OperatorFigures("q/o", 9, 128, "str", [state], {}, [], {}, {})
    (found,) = advice.state_advice(operator, [at(1), at(9, new=(5, 6 * MB))])
    assert "from 0 to 6,291,456" in found.what
    assert "5 keys instead of 0" in found.cure


def test_advice_on_files():
    """Stale files are counted, and damaged metadata is named."""
    stale, broken = advice.directory_advice(StaleFiles(2, 5000), ["q/o/kg-0-127/1.json"])
    assert "2 files with 5,000 bytes" in stale.what
    assert "q/o/kg-0-127/1.json" in broken.what


def test_figures_of_timers(tmp_path):
    """Timers are counted by spans, and overdue an hour after their time; only clocks give advice."""
    with mp.testing.KeyedOperatorHarness(Reminding(), key="k", clock_ms=NOW) as harness:
        harness.process({"k": "a", "item": "a"}, 1)
        harness.savepoint(str(tmp_path / "savepoint"))
    names = figures(tmp_path / "savepoint")["operators"][0]["figures"]["timers"]
    times = [0, 1, 39, 40, 79]
    found = TimerFigures.of_times(times, HOUR + 40)
    assert (found.first, found.last, found.overdue) == (0, 79, 3)
    assert found.counts == [2, *[0] * 18, 1, 1, *[0] * 18, 1]
    for name in names:
        operator = OperatorFigures("q/o", 9, 128, "str", [], {}, [], {}, {name: found})
        said = [each.what for each in advice.state_advice(operator, [])]
        assert said == (
            ["3 timers of processing time are overdue by more than an hour."]
            if "processing" in name
            else []
        )


def test_texts_of_numbers():
    """Sizes and lengths of time have the largest fitting unit."""
    assert [size_text(each) for each in (5, 2048, 3 << 20, 5 << 40)] == [
        "5 B", "2.05 kB", "3.15 MB", "5.5 TB",
    ]  # fmt: skip
    times = (5, 90_000, 2 * HOUR, 48 * HOUR)
    assert [duration_text(each) for each in times] == ["5 ms", "1.5 min", "2 h", "2 d"]
