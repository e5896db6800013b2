"""The lock of a backend's directory."""

import errno
import fcntl
import os

import pytest
from millpond.backend.working_directory import DirectoryLock


def test_a_lock_that_fails_leaves_no_descriptor(tmp_path, monkeypatch):
    """If the file system has no locks (as with NFS), its error is raised and the file is closed."""
    opened = []

    def no_locks(descriptor, operation):
        opened.append(descriptor)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        DirectoryLock("heap", tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
