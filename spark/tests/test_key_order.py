"""Frames sorted by stored key."""

import random

import pandas as pd
import pytest
from millpond.types import key_codec_for
from millpond_spark.values.frames import in_key_order

KINDS = {
    "int": (int, lambda at: at * 7919 - 40_000),
    "str": (str, lambda at: "ä€z"[at % 3] * (at % 4) + f"\0{at}" * (at % 2)),
    "bytes": (bytes, lambda at: bytes([at % 256, at % 3]) * (at % 3)),
}


def frame_of(parts, rows, seed):
    """Return a frame with key columns, the key group of each key, and the row numbers."""
    chance = random.Random(seed)
    keys = [tuple(make(chance.randrange(40)) for _, make in parts) for _ in range(rows)]
    columns = {f"c{at}": [key[at] for key in keys] for at in range(len(parts))}
    groups = [hash(key) % 300 for key in keys]
    return pd.DataFrame({**columns, "group": groups, "number": range(rows)}), keys, groups


@pytest.mark.parametrize("rows", [0, 1, 500, 70_000])
@pytest.mark.parametrize("names", [("int",), ("str",), ("bytes",), ("str", "int"), ("int",) * 3])
def test_rows_are_sorted_by_group_and_encoded_key_and_those_of_one_key_keep_their_order(
    names, rows
):
    """Rows are sorted by group, encoded key and position, and none is lost."""
    parts = [KINDS[name] for name in names]
    frame, keys, groups = frame_of(parts, rows, rows)
    columns = [f"c{at}" for at in range(len(parts))]
    codecs = [key_codec_for(kind) for kind, _ in parts]
    encoded = [
        b"".join(codec.encode(part) for codec, part in zip(codecs, key, strict=True))
        for key in keys
    ]
    expected = sorted(range(rows), key=lambda at: (groups[at], encoded[at], at))
    assert in_key_order(frame, columns, "group")["number"].tolist() == expected


@pytest.mark.parametrize("values", [[None] * 3, ["b", None, "a"], [b"b", None, b"a"]])
def test_missing_texts_come_first(values):
    """A null, which is refused later or part of a key, comes first."""
    frame = pd.DataFrame({"c0": pd.Series(values, dtype=object), "group": 1, "number": range(3)})
    order = [0, 1, 2] if values[0] is None else [1, 2, 0]
    assert in_key_order(frame, ["c0"], "group")["number"].tolist() == order


def test_zeros_of_both_signs_are_one_key_and_keep_their_order():
    """Rows with keys 0.0 and -0.0 are adjacent and keep their order."""
    values = [0.0, 1.5, -0.0, float("nan"), 0.0, float("nan"), -0.0]
    frame = pd.DataFrame({"c0": values, "group": [1] * 7, "number": range(7)})
    sorted_numbers = in_key_order(frame, ["c0"], "group")["number"].tolist()
    assert [at for at in sorted_numbers if values[at] == 0] == [0, 2, 4, 6]
    assert [at for at in sorted_numbers if values[at] != values[at]] == [3, 5]
