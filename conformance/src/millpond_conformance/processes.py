"""Run code in new processes with the same module search path as this process."""

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
    """Return the command line and the environment variables of a process that runs Python code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return [sys.executable, "-c", code, *arguments], environment


def in_a_child(
    code: str,
    *arguments: str,
    timeout: float = 120,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process, wait for its end, and return its status and output.

    Args:
        code: the Python source.
        arguments: the arguments that the code finds in ``sys.argv[1:]``.
        timeout: the number of seconds after which the process is killed.
        variables: additional environment variables.
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
    """A pool that calls each function in a new process.

    Like Spark's Python workers, the new processes are forks of one process. This process has loaded
    the backend's plugin, but has not opened a backend. A fork takes 10 ms, while a new interpreter
    takes a second.
    """

    def __init__(self, backend: str) -> None:
        command, environment = child_command(_ZYGOTE, backend)
        self._zygote = subprocess.Popen(  # noqa: S603 - the kit's own code
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function` in a new process, and return the result.

        Args:
            function: a function of a module. The new process finds it by its name.
            arguments: the arguments of the function.

        Raises:
            ChildProcessError: the process has ended with an error. The argument of the exception is
                the exit status, or the negative number of the signal that killed the process.
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
        """End the process from which all fresh processes are forked."""
        self._zygote.communicate()


@cache
def fresh_processes(backend: str) -> FreshProcesses:
    """Return the pool of new processes for a backend.

    All clauses of a run use the same pool. It is closed when this process ends.
    """
    processes = FreshProcesses(backend)
    atexit.register(processes.close)
    return processes
