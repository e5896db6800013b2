"""Files that commands write are complete or missing, and symbolic links are not followed."""

import csv
import resource
from contextlib import contextmanager, nullcontext

import millpond as mp
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond_cli.main import commands
from millpond_cli.output import ENDINGS, open_new, write_file, write_text
from millpond_conformance.newbackend import write_tree
from millpond_conformance.page import write_page

TABLE = pa.table({"key": [str(n) for n in range(9000)], "value": range(9000)})
TEXTS = ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "a=1", "", None, "'=1"]


@contextmanager
def disk_of(size):
    """Run a process whose files are limited in size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


WRITERS = {
    **{ending: lambda target: write_file(TABLE, target) for ending in ENDINGS},
    ".html": lambda target: write_page(target, []),
    ".json": lambda target: write_text(target, "{}" * 1000),
    "": lambda target: write_tree("fresh", target),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_a_full_disk_leaves_no_file(ending, tmp_path):
    """On a full disk no file is left; with space, the same call succeeds."""
    target = tmp_path / f"out{ending}"
    with disk_of(100), pytest.raises((errors.PlaceError, OSError)):
        WRITERS[ending](target)
    assert list(tmp_path.iterdir()) == []
    WRITERS[ending](target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_link_is_not_written_through(ending, tmp_path):
    """A symbolic link of the file's name is refused, and its target remains unchanged."""
    for name, text in (("dangling", None), ("leading", "kept")):
        place, target = tmp_path / name, tmp_path / f"{name}-link{ending}"
        if text is not None:
            place.write_text(text)
        target.symlink_to(place)
        try:
            WRITERS[ending](target)
        except (errors.PlaceError, errors.ConfigError):
            assert target.is_symlink()
        assert (place.read_text() if place.exists() else None) == text


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_appears_meanwhile(replace, tmp_path):
    """A file that appears during the command is kept, unless it may be replaced."""
    target = tmp_path / "out"
    refusal = pytest.raises(errors.PlaceError, match="it is there already")
    with nullcontext() if replace else refusal, open_new(target, replace=replace) as file:
        file.write(b"new")
        target.write_text("another's")
    assert target.read_text() == ("new" if replace else "another's")
    assert list(tmp_path.iterdir()) == [target]


@pytest.fixture
def savepoint(tmp_path):
    """A savepoint with a state of odd strings, some of them in a struct."""
    writer = mp.SavepointWriter.new_savepoint(max_parallelism=16)
    rows = [{"k": text, "texts": [text]} for text in TEXTS if text is not None]
    state = mp.ValueStateDescriptor("texts", list[str])
    writer.with_operator("texts", rows, state, key="k").write(tmp_path / "savepoint")
    return tmp_path / "savepoint"


def test_formulas_are_escaped_where_that_is_asked_for(savepoint, tmp_path):
    """With the option an apostrophe precedes each formula; without it strings are unchanged."""
    found = {}
    for name, options in (("plain", []), ("escaped", ["--escape-formulas"])):
        target = tmp_path / f"{name}.csv"
        call = ["state", "export", str(savepoint), "texts", str(target), *options]
        assert CliRunner().invoke(commands, call).exit_code == 0
        with target.open(newline="") as file:
            found[name] = {row["key"] for row in csv.DictReader(file)}
    plain = {text for text in TEXTS if text is not None}
    assert found["plain"] == plain
    escaped = {
        f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text for text in plain
    }
    assert found["escaped"] == escaped
    wrong = [
        "state",
        "export",
        str(savepoint),
        "texts",
        str(tmp_path / "x.arrow"),
        "--escape-formulas",
    ]
    assert CliRunner().invoke(commands, wrong).exit_code == 2


def test_numbers_and_missing_texts_are_no_formulas(tmp_path):
    """Negative numbers and nulls are not treated as formulas."""
    table = pa.table({"n": [-1, None], "s": ["-1", None], "l": [["=1"], None]})
    write_file(table, tmp_path / "out.csv", escape_formulas=True)
    read = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert read.to_numpy().tolist() == [["-1", "'-1", '["=1"]'], ["", "", ""]]
