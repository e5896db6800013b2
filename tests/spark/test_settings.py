"""A session's settings are read at once."""

from millpond.spark.driver.settings import all_settings
from py4j.protocol import MEMORY_COMMAND_NAME


def test_settings_are_those_that_the_session_tells(spark, monkeypatch):
    """They are what conf.getAll gives, by fewer calls than there are settings."""
    odd = {"spark.millpond.a -> b": "", "spark.millpond.lines": " one\ntwo, ü -> \t"}
    for key, value in odd.items():
        spark.conf.set(key, value)
    client = spark.sparkContext._gateway._gateway_client
    send, calls = client.send_command, []

    def told(command, *args, **kwargs):
        # What was let go is told to the JVM whenever Python's collector happens to run.
        if not command.startswith(MEMORY_COMMAND_NAME):
            calls.append(command)
        return send(command, *args, **kwargs)

    monkeypatch.setattr(client, "send_command", told)
    try:
        found = all_settings(spark)
        assert 0 < len(calls) < 12 < len(found)
        assert found == spark.conf.getAll
        assert found.items() >= odd.items()
    finally:
        for key in odd:
            spark.conf.unset(key)
