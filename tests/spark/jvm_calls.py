"""Record the calls from Python to the JVM."""

from py4j.protocol import MEMORY_COMMAND_NAME


def heard_calls(spark, monkeypatch):
    """Return a list to which each later call of the JVM is added."""
    client = spark.sparkContext._gateway._gateway_client
    send, calls = client.send_command, []

    def recorded(command, *args, **kwargs):
        # Python's garbage collector reports released objects to the JVM at any time.
        if not command.startswith(MEMORY_COMMAND_NAME):
            calls.append(command)
        return send(command, *args, **kwargs)

    monkeypatch.setattr(client, "send_command", recorded)
    return calls
