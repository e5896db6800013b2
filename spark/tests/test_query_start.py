"""What the driver does for a query's events."""

from types import SimpleNamespace

from millpond_spark.session.internals import StartListener


def test_progress_is_not_asked_for():
    """What Spark calls for progress and ends asks an event for nothing: PySpark would for all."""
    jvm = SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda called: called)
    called = StartListener(SimpleNamespace(_jvm=jvm), print)._jlistener
    called.onQueryProgress(object())
    called.onQueryIdle(object())
    called.onQueryTerminated(object())
