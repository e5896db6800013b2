"""Local checkpoint directories: every path is literal, and only regular files count."""

import os
import socket
import threading
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors
from millpond.storage import remote_file_systems

from tests.checkpoint.stored import locate_savepoint


@pytest.mark.parametrize("name", ["x#y", "x?y", "x y", "fünf", "%2e%2e", "100%", "a&b=c", "x'\"y"])
def test_any_path_is_meant_literally(tmp_path, name):
    """A plain path, its URI and a path below it refer to the directory of exactly that name."""
    folder = tmp_path / name
    for place in (str(folder), folder.as_uri()):
        storage = mp.checkpoint_storage(place)
        storage.write("a/b#c?d%41", [b"x"])
        assert (folder / "a/b#c?d%41").read_bytes() == b"x"
        assert storage.list("") == storage.list("a") == ["a/b#c?d%41"]
        storage.delete("a/b#c?d%41")
    assert mp.checkpoint_storage(str(folder)) == mp.checkpoint_storage(f"{folder.as_uri()}/")
    assert locate_savepoint(folder).storage == storage
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("file:///d/x#y", "%23 for #"),
        ("file:///d/x?y", "%3F for"),
        ("file:///d/%2e%2e/x", "hides a parent directory"),
        ("file:///d/%00", "null byte"),
        ("file://d/x", "write file:///x"),
        ("file:d/x", "not absolute; write file:///"),
        ("relative/x", "write '/"),
        ("~/x", f"write '{Path.home()}/x'"),
    ],
)
def test_what_is_unclear_is_refused_with_what_to_write(uri, message):
    """An ambiguous path is refused with the correct form."""
    with pytest.raises(errors.ConfigError, match=message):
        mp.checkpoint_storage(uri)


def test_tools_take_relative_paths_and_the_home(tmp_path, monkeypatch):
    """A savepoint's path may be relative to the working directory or begin with ~."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    wanted = locate_savepoint(tmp_path / "a b").storage
    assert locate_savepoint("a b").storage == locate_savepoint("~/a b").storage == wanted


def put_fifo(path):
    """Create a pipe without a writer."""
    os.mkfifo(path)


def put_socket(path):
    """Create a socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "put", [put_fifo, put_socket, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]
)
def test_only_regular_files_are_read(tmp_path, monkeypatch, put):
    """A pipe, socket, directory or device in place of a file is refused at once, by name."""
    monkeypatch.chdir(tmp_path)
    put(Path("odd"))
    storage = mp.checkpoint_storage(str(tmp_path))
    found = []

    def read():
        for attempt in (lambda: storage.read("odd", 0, 1), lambda: storage.size("odd")):
            with pytest.raises(errors.CorruptSnapshotError, match="'odd'"):
                attempt()
        found.append(storage.list(""))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(10)
    assert found == [[]]


def test_nothing_outside_is_listed_or_deleted(tmp_path):
    """Symbolic links to directories are not followed, and their targets remain."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "up").symlink_to("..")
    storage = mp.checkpoint_storage(str(inside))
    assert storage.list("") == storage.list("link") == []
    for path in ("link/file", "up/outside/file"):
        storage.delete(path)
    assert (outside / "file").exists()


def test_files_that_go_while_they_are_listed_are_left_out(tmp_path, monkeypatch):
    """Files that a running job deletes or renames during a listing are omitted."""
    storage = mp.checkpoint_storage(str(tmp_path))
    storage.write("kept", [b"1"])
    storage.write("gone", [b"1"])
    walk = os.walk

    def busy(*args, **named):
        for found in walk(*args, **named):
            (tmp_path / "gone").unlink(missing_ok=True)
            yield found

    monkeypatch.setattr(os, "walk", busy)
    assert storage.list("") == ["kept"]


def test_the_directory_itself_may_be_a_link(tmp_path):
    """A checkpoint directory may be a symbolic link to a moved directory."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    storage = mp.checkpoint_storage(str(tmp_path / "link"))
    storage.write("a/b", [b"x"])
    assert storage.list("") == ["a/b"]
    storage.delete("a/b")
    assert storage.list("") == []


@pytest.mark.parametrize(("offset", "length"), [(0, 1 << 62), (1 << 62, 1), (-1, 1), (0, -1)])
def test_a_read_takes_no_more_memory_than_the_file(tmp_path, offset, length):
    """A read beyond the end of a file is refused before memory is allocated."""
    storage = mp.checkpoint_storage(str(tmp_path))
    storage.write("a", [b"x"])
    with pytest.raises(errors.CorruptSnapshotError, match="'a'"):
        storage.read("a", offset, length)


def test_a_store_that_does_not_answer_is_given_up(monkeypatch):
    """A remote store that does not answer raises an error after a limited time."""
    release = threading.Event()
    monkeypatch.setattr(remote_file_systems, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(
        remote_file_systems, "_named_filesystem", lambda uri, s3: release.wait(60) and (uri, "")
    )
    with pytest.raises(errors.ConfigError, match="has not answered within"):
        mp.checkpoint_storage("gs://bucket/silent")
    release.set()
