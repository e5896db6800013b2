"""A PostgreSQL server on a Unix socket, for one test."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

DEBIAN = Path("/usr/lib/postgresql")
SETTINGS = {"listen_addresses": "", "fsync": "off", "shared_buffers": "16MB"}


def program(name):
    """Return the path of a program of PostgreSQL; ``tools/postgresql`` installs it."""
    found = shutil.which(name) or max(map(str, DEBIAN.glob(f"*/bin/{name}")), default=None)
    assert found, f"no {name} on this machine: run tools/postgresql"
    return found


def account(folder):
    """Return the arguments of a process that owns a folder, because PostgreSQL refuses root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def postgres_server():
    """Start a server for the duration of a test; yields the connection string of its database."""
    # A Unix socket's path has at most 107 bytes, and pytest's folders are closed to other users.
    folder = tempfile.mkdtemp(prefix="millpond-postgres-")
    process = None
    try:
        owner, data = account(folder), f"{folder}/data"
        subprocess.run(
            [program("initdb"), "--auth=trust", "--username=test", "--no-sync", "-E", "UTF8", data],
            check=True, capture_output=True, cwd=folder, **owner,
        )  # fmt: skip
        settings = {**SETTINGS, "unix_socket_directories": folder}
        options = [f"--{key}={value}" for key, value in settings.items()]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [program("postgres"), "-D", data, *options],
                stdout=log, stderr=log, cwd=folder, **owner,
            )  # fmt: skip
        address = f"host={folder} user=test dbname=postgres"
        wait_for(process, address, Path(folder, "log"))
        yield address
    finally:
        if process:
            process.send_signal(signal.SIGQUIT)
            process.wait()
        shutil.rmtree(folder)


def wait_for(process, address, log):
    """Wait until the server accepts connections."""
    while True:
        try:
            return psycopg.connect(address).close()
        except psycopg.OperationalError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                raise AssertionError(log.read_text()) from None
