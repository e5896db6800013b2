"""What the driver does for a query's events."""

from types import SimpleNamespace

from millpond_spark.driver.query_start import _LayoutListener


def test_progress_is_not_asked_for():
    """What Spark calls for progress and ends asks an event for nothing: PySpark would for all."""
    jvm = SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda called: called)
    called = _LayoutListener(SimpleNamespace(_jvm=jvm))._jlistener
    called.onQueryProgress(object())
    called.onQueryIdle(object())
    called.onQueryTerminated(object())
