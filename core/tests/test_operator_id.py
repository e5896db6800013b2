"""Operator ids: their text, folder and label, and the paths below a checkpoint directory."""

import pickle

import pytest
from millpond import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.paths import (
    SnapshotPath,
    layout_path,
    new_snapshot_path,
    owner_of,
    parse_layout_path,
    snapshot_folder,
)


@pytest.mark.parametrize(
    ("text", "query", "uid", "folder", "label"),
    [
        ("q/totals", "q", "totals", "q/totals", "q/totals"),
        ("totals", "", "totals", "totals", "totals"),
        ("/q/totals/", "q", "totals", "q/totals", "q/totals"),
        ("a/b/totals", "a/b", "totals", "a/b/totals", "a/b/totals"),
        ("", "", "", "state", "keyed state"),
    ],
)
def test_an_operator_of_a_text(text, query, uid, folder, label):
    """The uid is the last part of the text; without a query name, a default word is used."""
    operator = OperatorId.from_text(text)
    assert operator == OperatorId(query, uid)
    assert (operator.folder, operator.label) == (folder, label)
    assert OperatorId.from_text(str(operator)) == operator
    assert pickle.loads(pickle.dumps(operator)) == operator


@pytest.mark.parametrize("text", ["q/totals", "totals"])
def test_paths_tell_their_operator(text):
    """Each file below an operator's folder is recognized as that operator's."""
    operator = OperatorId.from_text(text)
    folder = snapshot_folder(operator, KeyGroupRange(3, 17))
    assert folder == f"{text}/kg-3-17"
    path = new_snapshot_path(folder, 7, "snapshot")
    assert SnapshotPath.parse(path) == SnapshotPath(folder, operator, KeyGroupRange(3, 17), 7)
    assert path != new_snapshot_path(folder, 7, "snapshot")
    layout = layout_path(operator, 4)
    assert layout == f"{text}/layout/00000004.json"
    assert parse_layout_path(layout) == (operator, 4)
    assert owner_of(path) == owner_of(layout) == operator


@pytest.mark.parametrize(
    "path",
    [
        "q/op/kg-3-2/1-" + "0" * 32 + ".base.arrow",
        "q/op/kg-0-99999/1-" + "0" * 32 + ".base.arrow",
        "q/op/kg-0-1/x-" + "0" * 32 + ".base.arrow",
        "q/op/kg-0-1/1-short.base.arrow",
        "q/op/layout/00000001.json",
    ],
)
def test_other_files_are_no_snapshots(path):
    """Files with impossible key groups or other names are not recognized."""
    assert SnapshotPath.parse(path) is None
    assert parse_layout_path("q/op/layout/notes.json") is None
