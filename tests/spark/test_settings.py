"""A session's settings are read at once."""

from millpond_spark.session.spark_conf import all_settings

from tests.spark.jvm_calls import heard_calls


def test_settings_are_those_that_the_session_tells(spark, monkeypatch):
    """They are what conf.getAll gives, by fewer calls than there are settings."""
    odd = {"spark.millpond.a -> b": "", "spark.millpond.lines": " one\ntwo, ü -> \t"}
    for key, value in odd.items():
        spark.conf.set(key, value)
    calls = heard_calls(spark, monkeypatch)
    try:
        found = all_settings(spark)
        assert 0 < len(calls) < 12 < len(found)
        assert found == spark.conf.getAll
        assert found.items() >= odd.items()
    finally:
        for key in odd:
            spark.conf.unset(key)
