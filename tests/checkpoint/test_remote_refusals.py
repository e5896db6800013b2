"""Errors of a remote storage name the file, the storage's own message and a cure."""

import urllib.request

import millpond as mp
import pytest
from millpond import errors
from millpond.storage import remote_file_systems
from moto.server import ThreadedMotoServer
from pyarrow import fs

TOTAL = mp.ValueStateDescriptor("total", int)
BUCKET = "millpond-refusals"


@pytest.fixture
def server(monkeypatch):
    """A server that speaks S3's protocol on loopback, with a bucket."""
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    started.start()
    host, port = started.get_host_and_port()
    started.root = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{started.root}/{BUCKET}", method="PUT")).close()

    def impatient(uri, _):
        rest = uri.partition("@")[2].partition("?")[0]
        return fs.S3FileSystem(
            access_key="key", secret_key="secret", region="us-east-1", scheme="http",
            endpoint_override=f"{host}:{port}",
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        ), rest  # fmt: skip

    monkeypatch.setattr(remote_file_systems, "_named_filesystem", impatient)
    yield started
    started.stop()


def storage(server, bucket=BUCKET):
    """The storage in a bucket, whose name differs from those of other tests."""
    address = server.root.rpartition("/")[2]
    return mp.checkpoint_storage(f"s3://key:secret@{bucket}/jobs?endpoint_override={address}")


def refusals(store):
    """Return the error of each use of a storage, by use."""
    uses = {
        "write": lambda: store.write("a/b", [b"x"]),
        "list": lambda: store.list("a"),
        "size": lambda: store.size("a/b"),
        "read": lambda: store.read("a/b", 0, 1),
        "delete": lambda: store.delete("a/b"),
    }
    found = {}
    for name, use in uses.items():
        try:
            use()
        except errors.MillpondError as error:
            found[name] = error
    return found


def authorize(server, count):
    """Let the server refuse all credentials after a number of requests."""
    plain = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{server.root}/moto-api/reset-auth", count.encode(), plain)
    urllib.request.urlopen(request).close()


def test_a_bucket_that_is_not_there(server):
    """If the bucket does not exist, the first snapshot names file, bucket and cure."""
    store = storage(server, "nobody-made-this")
    with mp.open_keyed_backend("heap", key_type=str, place="q/totals") as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(TOTAL).update(1)
        with pytest.raises(errors.StorageAccessError, match="Make the bucket") as caught:
            backend.snapshot(1, store).result()
    assert caught.value.path.startswith("s3://nobody-made-this/jobs/q/totals/")
    assert "secret" not in str(caught.value)
    assert "NO_SUCH_BUCKET" in caught.value.reason


def test_credentials_without_a_right(server):
    """If the credentials have no permission, each use says so; no file is reported as missing or damaged."""
    store = storage(server)
    store.write("a/b", [b"x"])
    authorize(server, "0")
    try:
        found = refusals(store)
    finally:
        authorize(server, "inf")
    assert set(found) == {"write", "list", "size", "read", "delete"}
    for error in found.values():
        assert isinstance(error, errors.StorageAccessError)
        assert "right to list, read, write and delete" in error.cure
    assert store.read_all("a/b") == b"x"


def test_a_server_that_goes_away(server):
    """If the server stops during or after a write, the error names the file and suggests to check the server."""
    store = storage(server)

    def chunks():
        yield bytes(6 << 20)
        server.stop()
        yield bytes(6 << 20)

    with pytest.raises(errors.StorageAccessError, match="the store runs") as caught:
        store.write("a/b", chunks())
    assert caught.value.path == f"s3://{BUCKET}/jobs/a/b"
    found = refusals(store)
    assert set(found) == {"write", "list", "size", "read", "delete"}
    for error in found.values():
        assert isinstance(error, errors.StorageAccessError)
        assert "can be reached" in error.cure
