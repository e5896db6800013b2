"""The background part of a snapshot, which runs in a thread and can be cancelled."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from typing_extensions import override

from millpond.spi.snapshots import SnapshotResult


class SnapshotTask(Future[SnapshotResult]):
    """The future of a snapshot. Unlike other futures, it can be cancelled while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self._unwanted = threading.Event()

    @override
    def cancel(self) -> bool:
        """Ask the snapshot to stop at its next call of `check`, and return True.

        If the snapshot has already ended, return whether it was cancelled.
        """
        if self.done():
            return self.cancelled()
        self._unwanted.set()
        return True

    def check(self) -> None:
        """Raise CancelledError if the snapshot was cancelled.

        The function that writes the snapshot calls this method from time to time.
        """
        if self._unwanted.is_set():
            raise CancelledError

    def run(
        self, work: Callable[[SnapshotTask], SnapshotResult], close: Callable[[], None]
    ) -> None:
        """Call `work`, then `close`, and then set the result of this future.

        Args:
            work: writes the snapshot, and returns the result.
            close: releases the frozen view, also if `work` fails.
        """
        try:
            try:
                result = work(self)
            finally:
                close()
        except CancelledError:
            super().cancel()
            self.set_running_or_notify_cancel()
        except BaseException as error:  # noqa: BLE001 - set as the result
            self.set_exception(_released(error))
        else:
            self.set_result(result)


def _released(error: BaseException) -> BaseException:
    """Clear the local variables in the tracebacks of an error and its causes; return the error.

    A strategy keeps a failed task until the snapshot is aborted. Until then the local variables
    would keep open files and read transactions alive.
    """
    passed: BaseException | None = error
    while passed is not None:
        trace = passed.__traceback__
        if passed is error and trace is not None:
            trace = trace.tb_next  # the frame of the task itself, which still runs
            passed.__traceback__ = trace
        traceback.clear_frames(trace)
        passed = passed.__cause__ or passed.__context__
    return error


def run_snapshot(
    work: Callable[[SnapshotTask], SnapshotResult],
    close: Callable[[], None],
    *,
    background: bool,
) -> SnapshotTask:
    """Run `work` and then `close` in a new thread, or now if not `background`; return the task."""
    task = SnapshotTask()
    if background:
        try:
            threading.Thread(
                target=task.run, args=(work, close), name="millpond-snapshot", daemon=True
            ).start()
        except BaseException:
            close()
            raise
    else:
        task.run(work, close)
    return task
