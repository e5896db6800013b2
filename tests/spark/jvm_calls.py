"""What Python asks the JVM for, call by call."""

from py4j.protocol import MEMORY_COMMAND_NAME


def heard_calls(spark, monkeypatch):
    """A list to which each call of the JVM is added from now on."""
    client = spark.sparkContext._gateway._gateway_client
    send, calls = client.send_command, []

    def told(command, *args, **kwargs):
        # What was let go is told to the JVM whenever Python's collector happens to run.
        if not command.startswith(MEMORY_COMMAND_NAME):
            calls.append(command)
        return send(command, *args, **kwargs)

    monkeypatch.setattr(client, "send_command", told)
    return calls
