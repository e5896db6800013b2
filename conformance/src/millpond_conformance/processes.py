"""Run code in new processes that find the same modules as this one."""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from millpond.closeable import Closeable
from typing_extensions import override

_LENGTH = struct.Struct(">q")


def child_command(code: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that runs some code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return [sys.executable, "-c", code, *arguments], environment


def in_a_child(
    code: str,
    *arguments: str,
    timeout: float = 120,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, and wait for its end, up to a timeout.

    Args:
        code: Python source; it finds its arguments in ``sys.argv``.
        arguments: its arguments.
        timeout: seconds after which it is killed.
        variables: further environment variables.
    """
    command, environment = child_command(code, *arguments)
    return subprocess.run(  # noqa: S603 - the kit's own code
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **(variables or {})},
        timeout=timeout,
    )


_ZYGOTE = """
import os, pickle, struct, sys
from importlib import import_module

def receive():
    head = sys.stdin.buffer.read(8)
    return pickle.loads(sys.stdin.buffer.read(struct.unpack(">q", head)[0])) if head else None

def send(answer):
    data = pickle.dumps(answer)
    sys.stdout.buffer.write(struct.pack(">q", len(data)) + data)
    sys.stdout.buffer.flush()

import_module("millpond_conformance.elsewhere").prepare(sys.argv[1])
while (request := receive()) is not None:
    module, function, arguments = request
    child = os.fork()
    if child == 0:
        status = 1
        try:
            send(getattr(import_module(module), function)(*arguments))
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        send(ChildProcessError(status))
"""


class FreshProcesses(Closeable):
    """Calls functions, each in a process of its own that has not used any backend yet.

    The processes are forks of one that has imported the plugin and opened nothing, like Spark's
    Python workers. A fork takes 10 ms instead of a second.
    """

    def __init__(self, backend: str) -> None:
        command, environment = child_command(_ZYGOTE, backend)
        self._zygote = subprocess.Popen(  # noqa: S603 - the kit's own code
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a module there, and return its result.

        Raises:
            ChildProcessError: the process has died; its argument is the exit status, or the
                negative number of a signal.
        """
        pipe_in, pipe_out = self._zygote.stdin, self._zygote.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        request = pickle.dumps((function.__module__, function.__qualname__, arguments))
        pipe_in.write(_LENGTH.pack(len(request)) + request)
        pipe_in.flush()
        (length,) = _LENGTH.unpack(pipe_out.read(_LENGTH.size))
        answer = pickle.loads(pipe_out.read(length))  # noqa: S301 - written by the kit's own code
        if isinstance(answer, ChildProcessError):
            raise answer
        return answer

    @override
    def close(self) -> None:
        """End the process from which the others are forked."""
        self._zygote.communicate()


@cache
def fresh_processes(backend: str) -> FreshProcesses:
    """Return the processes of a backend for all clauses of a run; they end with this process."""
    processes = FreshProcesses(backend)
    atexit.register(processes.close)
    return processes
