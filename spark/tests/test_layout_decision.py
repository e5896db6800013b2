"""Tables of decisions whether an operator keeps its layout."""

import attrs
import pytest
from millpond import errors
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle
from millpond.types import SerializerSnapshot
from millpond_spark.plan.layout import Layout
from millpond_spark.plan.layout_decision import Step, decide_layout

TEXT, DAYS = SerializerSnapshot("str"), SerializerSnapshot("date")
SOURCE = KeyedStateHandle(5, "v", KeyGroupRange(0, 127), 128, TEXT, (), ())
DECLARED = Layout(0, 2, 128, roster=("u",), restore="", key=TEXT)
GOING = attrs.evolve(DECLARED, number=3, settled_after=4, restore=None, sources=(SOURCE,))
BEGUN = attrs.evolve(DECLARED, number=3, settled_after=4, savepoint="s", restore="s")
PREPARED = attrs.evolve(GOING, status="prepared")


def declared(**changes):
    """Return an operator's declaration, by default that of its last layout."""
    return attrs.evolve(DECLARED, **changes)


@pytest.mark.parametrize(
    ("current", "last", "wanted", "has_state", "now", "step"),
    [
        # A new operator begins, and so does one whose state was dropped.
        (None, None, declared(), False, -1, Step.BEGIN),
        (None, None, declared(restore="s"), False, 7, Step.BEGIN),
        (GOING, None, declared(), False, 7, Step.BEGIN),
        # Nothing has changed.
        (GOING, GOING, declared(), True, 7, Step.KEEP),
        (BEGUN, BEGUN, declared(restore="s"), True, 4, Step.KEEP),
        (BEGUN, BEGUN, declared(), True, 4, Step.KEEP),
        # Another savepoint is used until a batch is committed.
        (BEGUN, BEGUN, declared(restore="t"), True, 4, Step.BEGIN),
        (BEGUN, BEGUN, declared(restore="t", max_parallelism=64), True, 4, Step.BEGIN),
        (BEGUN, BEGUN, declared(restore="t"), True, 5, Step.KEEP),
        (GOING, GOING, declared(restore="t"), True, 4, Step.KEEP),
        # Another parallelism, or other operators of the query.
        (GOING, GOING, declared(parallelism=3), True, 7, Step.GATHER),
        (GOING, GOING, declared(roster=("u", "w")), True, 7, Step.GATHER),
        (BEGUN, BEGUN, declared(parallelism=3), True, 4, Step.CARRY),
        (BEGUN, BEGUN, declared(roster=("u", "w")), True, 5, Step.GATHER),
        # The key type may change as long as there is no state.
        (BEGUN, BEGUN, declared(key=DAYS), True, 4, Step.CARRY),
        (GOING, GOING, declared(key=DAYS), False, 7, Step.GATHER),
        (attrs.evolve(GOING, key=None), attrs.evolve(GOING, key=None), declared(), True, 7, Step.KEEP),
        # `rescale` always writes; a classic start then reads the snapshots of the layout before.
        (GOING, GOING, declared(status="prepared"), True, 7, Step.GATHER),
        (BEGUN, BEGUN, declared(status="prepared"), True, 4, Step.CARRY),
        (PREPARED, attrs.evolve(GOING, number=2), declared(), True, 7, Step.GATHER),
        # A task over Spark Connect can only continue with the prepared layout itself.
        (PREPARED, PREPARED, declared(), True, 4, Step.CARRY),
    ],
)  # fmt: skip
def test_the_next_layout(current, last, wanted, has_state, now, step):
    """An operator keeps its layout, begins, takes over sources, or collects snapshots."""
    found, layout = decide_layout("u", current, last, wanted, now, lambda: has_state)
    assert found is step
    if step is Step.KEEP:
        assert layout is current
        return
    number = 0 if current is None else current.number + 1
    expected = attrs.evolve(wanted, number=number)
    if step is Step.CARRY:
        expected = attrs.evolve(
            expected, sources=last.sources, savepoint=last.savepoint, restore=last.restore
        )
    if step is Step.GATHER:
        expected = attrs.evolve(expected, restore=None)
    assert layout == expected


@pytest.mark.parametrize(
    ("wanted", "now", "error"),
    [
        (declared(), 3, errors.RestoreError),
        (declared(), -1, errors.RestoreError),
        (declared(max_parallelism=64), 7, errors.MaxParallelismError),
        (declared(key=DAYS), 7, errors.StateMigrationError),
        (declared(key=DAYS, parallelism=3), 7, errors.StateMigrationError),
    ],
)
def test_a_refused_layout(wanted, now, error):
    """An older checkpoint, other key groups and another key type are refused."""
    with pytest.raises(error):
        decide_layout("u", GOING, GOING, wanted, now, lambda: True)


def test_state_is_asked_for_only_if_keys_have_changed():
    """Whether state exists is checked only if the key type has changed, because it may need a Spark job."""
    asked = []
    decide_layout("u", GOING, GOING, declared(), 7, lambda: asked.append(1))
    assert not asked
