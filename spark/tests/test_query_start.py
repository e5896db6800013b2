"""The driver's reaction to a query's events."""

from types import SimpleNamespace

from millpond_spark.session.internals import StartListener


def test_progress_is_not_asked_for():
    """The listener reads no field of progress and end events, because PySpark would convert all of them."""
    jvm = SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda called: called)
    called = StartListener(SimpleNamespace(_jvm=jvm), print)._jlistener
    called.onQueryProgress(object())
    called.onQueryIdle(object())
    called.onQueryTerminated(object())
