"""Patterns over their life: errors, size of the state, savepoints, changed code and changed rows."""

import millpond as mp
import pytest
from millpond import errors
from millpond.patterns import AfterMatchSkipStrategy, Pattern
from millpond.patterns import pattern as search_for

ROW = "k string, kind string"
PAIR = Pattern.begin("a", lambda row: row.kind == "a").followed_by("b", lambda row: row.kind == "b")
BACKENDS = ["heap", "rocksdb", "lmdb"]


def kinds(match):
    return "".join(row.kind for rows in match.values() for row in rows)


def harness(function, **options):
    return mp.testing.KeyedOperatorHarness(function, key="k", **options)


def row(kind, key="x"):
    return {"k": key, "kind": kind}


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pattern.begin("a").next("a"), "there is a stage of this name already"),
        (lambda: Pattern.begin(""), "it is empty"),
        (lambda: Pattern.begin("a").greedy(), "call times or one_or_more first"),
        (lambda: Pattern.begin("a").consecutive(), "call times or one_or_more first"),
        (lambda: Pattern.begin("a").times(2).one_or_more(), "is set already"),
        (lambda: Pattern.begin("a").not_next("b", bool).optional(), "takes no rows"),
        (lambda: Pattern.begin("a").optional().not_next("b", bool), "cannot follow an optional"),
        (lambda: Pattern.begin("a").within(0), "is not positive"),
        (lambda: search_for(Pattern.begin("a").not_followed_by("b", bool), ROW), "needs within"),
        (
            lambda: search_for(Pattern.begin("a").not_next("b", bool).not_next("c", bool), ROW),
            "two negative stages cannot end",
        ),
        (
            lambda: search_for(Pattern.begin("a").not_next("b", bool).next("c").optional(), ROW),
            "only optional stages follow",
        ),
        (
            lambda: search_for(
                Pattern.begin("first", skip=AfterMatchSkipStrategy.skip_to_last("frist")), ROW
            ),
            "Did you mean 'first'",
        ),
        (lambda: search_for(PAIR, "k string, kind nothing"), "nothing"),
    ],
)
def test_wrong_patterns(make, said):
    """A pattern that could never match is refused where it is made, with the stage and the cure."""
    with pytest.raises(errors.ConfigError, match=said):
        make()


def broken(row):
    return row.missing > 1


def test_errors_name_the_users_function():
    """An error names the condition or the selecting function that failed, and its line."""
    with harness(search_for(Pattern.begin("a", broken), ROW).select(kinds)) as opened:
        opened.process(row("a"), 1)
        said = "broken failed.*no column 'missing'"
        with pytest.raises(errors.UserFunctionError, match=said) as info:
            opened.advance_watermark(5)
    assert info.value.file == __file__

    def lazy(match):
        yield match

    with harness(search_for(PAIR, ROW).in_processing_time().select(lazy)) as opened:
        opened.process(row("a"))
        with pytest.raises(errors.UserFunctionError, match="lazy.*one row"):
            opened.process(row("b"))


def test_rows_without_event_time():
    """A row without an event time fails a search by event time, or becomes a dead letter."""
    search = search_for(PAIR, ROW).select(kinds)
    with harness(search) as opened, pytest.raises(errors.UserFunctionError, match="NoEventTime"):
        opened.process(row("a"))
    with harness(search, null_event_times="side_output") as opened:
        opened.process(row("a"))
        assert len(opened.output.side_output(mp.DEAD_LETTERS)) == 1


def test_dead_letters_in_processing_time():
    """In processing time a row that fails leaves the partial matches as they were."""

    def strict(row):
        if row.kind == "?":
            raise ValueError(row.kind)
        return row.kind == "b"

    pattern = Pattern.begin("a", lambda row: row.kind in "a?").followed_by("b", strict)
    search = search_for(pattern, ROW).in_processing_time().select(kinds)
    with harness(search, on_error="side_output") as opened:
        for kind in "a?b":
            opened.process(row(kind))
        assert opened.output == ["ab"]
        assert [each.row.kind for each in opened.output.side_output(mp.DEAD_LETTERS)] == ["?"]


# ---------------------------------------------------------------- state


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("by_event", [True, False])
def test_state_is_bounded_by_within(backend, by_event):
    """Once the last row is older than the limit, a key has neither state nor timers."""
    pattern = Pattern.begin("a", lambda row: row.kind == "a").one_or_more().followed_by("z")
    pattern = pattern.next("never", lambda row: False).within(10)
    search = search_for(pattern, ROW)
    function = (search if by_event else search.in_processing_time()).select(kinds)
    with harness(function, backend=backend) as opened:
        for time in range(20):
            if not by_event:
                opened.advance_processing_time(time)
            opened.process(row("aab"[time % 3], "xy"[time % 2]), time if by_event else None)
            opened.advance_watermark(time - 3)
        assert opened._backend.num_state_entries() > 0
        move = opened.advance_watermark if by_event else opened.advance_processing_time
        move(29)
        assert opened._backend.num_state_entries() == 0
        assert opened._operator.timers.next_due() == (None, None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_waiting_rows_of_one_time_are_stored_singly(backend):
    """A waiting row costs the same if many rows of its time wait already, also at the last time."""
    function = search_for(Pattern.begin("all").times(20).consecutive(), ROW).select(kinds)
    with harness(function, backend=backend) as opened:
        for time in (5, 2**63 - 1):
            for kind in "abcdefghij":
                opened.process(row(kind), time)
        assert opened._backend.num_state_entries() == 20
        opened.advance_watermark(2**63 - 1)
        assert opened.output == ["abcdefghij" * 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_savepoints(backend, tmp_path):
    """Partial matches and waiting rows pass through a savepoint to another backend."""
    function = search_for(PAIR.within(100), ROW).select(kinds)
    with harness(function, backend=backend) as opened:
        opened.process(row("a"), 1)
        opened.advance_watermark(2)
        opened.process(row("b"), 9)
        saved = opened.savepoint(tmp_path / "saved")
    other = BACKENDS[BACKENDS.index(backend) - 1]
    with harness(function, backend=other, restore=saved) as opened:
        opened.advance_watermark(9)
        assert opened.output == ["ab"]


@pytest.fixture
def handle():
    """A snapshot with a partial match and a waiting row."""
    with harness(search_for(PAIR, ROW).select(kinds)) as opened:
        opened.process(row("a"), 1)
        opened.advance_watermark(2)
        opened.process(row("c"), 9)
        yield opened.snapshot()


def test_changed_conditions_and_limits(handle):
    """Conditions, the number of rows and the limit may change between two starts."""
    pattern = Pattern.begin("a").followed_by("b", lambda row: row.kind == "c").within(50)
    with harness(search_for(pattern, ROW).select(kinds), restore=handle) as opened:
        opened.advance_watermark(9)
        assert opened.output == ["ac"]


def test_a_lowered_number_of_rows():
    """After the limit of a loop is lowered, a stored partial match takes one more row at most."""
    searches = [
        search_for(Pattern.begin("a").times(number), ROW).select(kinds) for number in (4, 2)
    ]
    with harness(searches[0]) as opened:
        for time in range(3):
            opened.process(row("a"), time)
        opened.advance_watermark(2)
        stored = opened.snapshot()
    with harness(searches[1], restore=stored) as opened:
        for time in range(3, 6):
            opened.process(row("a"), time)
        opened.advance_watermark(9)
        assert opened.output == ["aaaa", "aaa", "aa", "aa", "aa"]


def test_matches_that_wait_when_skip_changes():
    """Without a skip strategy, the matches that it made wait are output."""

    def searched(skip):
        first = Pattern.begin("lower", lambda row: row.kind.islower(), skip=skip)
        pattern = first.followed_by(
            "upper", lambda row, match: row.kind == match["lower"][0].kind.upper()
        )
        return search_for(pattern.within(50), ROW).select(kinds)

    with harness(searched(AfterMatchSkipStrategy.skip_past_last_event())) as opened:
        for time, kind in enumerate("abB"):
            opened.process(row(kind), time)
        opened.advance_watermark(3)
        assert opened.output == []
        stored = opened.snapshot()
    with harness(searched(AfterMatchSkipStrategy.no_skip()), restore=stored) as opened:
        opened.advance_watermark(60)
        assert opened.output == ["bB"]
        assert opened._backend.num_state_entries() == 0


def test_changed_stages(handle):
    """With other stages, stored partial matches are refused."""
    pattern = Pattern.begin("a").next("c")
    with (
        harness(search_for(pattern, ROW).select(kinds), restore=handle) as opened,
        pytest.raises(errors.UserFunctionError, match="belong to other stages: choose another uid"),
    ):
        opened.advance_watermark(9)


def test_changed_rows(handle):
    """Rows may get new columns, which are null in stored rows."""
    pattern = Pattern.begin("a").followed_by("b", lambda row: row.price is None)
    search = search_for(pattern, f"{ROW}, price double").select(kinds)
    with harness(search, restore=handle) as opened:
        opened.process({**row("d"), "price": 2.0}, 5)
        opened.advance_watermark(9)
        assert opened.output[0] == "ac"


def test_a_row_that_is_processed_again_is_not_matched_twice(handle):
    """After a restore the watermark begins again; an earlier row does not repeat stored ones."""
    with harness(search_for(PAIR, ROW).select(kinds), restore=handle) as opened:
        opened.process(row("b"), 1)
        opened.advance_watermark(20)
        assert opened.output == ["ab"]


def test_huge_loops():
    """A loop of a thousand rows works, and its partial matches share their rows."""
    pattern = Pattern.begin("a", skip=AfterMatchSkipStrategy.skip_past_last_event()).times(1000)
    with harness(search_for(pattern.consecutive(), ROW).select(kinds)) as opened:
        for number in range(1000):
            opened.process(row("a"), number // 10)
        opened.advance_watermark(100)
        assert opened.output == ["a" * 1000]
