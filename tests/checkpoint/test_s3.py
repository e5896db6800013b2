"""Settings of S3 come from the URI, Millpond's options, Hadoop or the environment; secrets are hidden."""

import pickle

import millpond as mp
import pytest
from millpond import errors
from millpond.config import S3Config
from millpond.storage.remote_file_systems import s3_filesystem, s3_settings

from tests import s3_server

SECRETS = ("WHO", "hush", "sesame")
KEYS = {
    "checkpoint.s3.access-key": "WHO",
    "checkpoint.s3.secret-key": "hush",
    "checkpoint.s3.session-token": "sesame",
}
HADOOP = {
    "fs.s3a.endpoint": "http://store:9000",
    "fs.s3a.endpoint.region": "eu-west-1",
    "fs.s3a.access.key": "all",
    "fs.s3a.secret.key": "all's",
    "fs.s3a.bucket.mine.access.key": "mine",
    "fs.s3a.bucket.mine.secret.key": "mine's",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.connection.ssl.enabled": "true",
    "fs.s3a.threads.max": "3",
}


def reached(uri, options=None, hadoop=HADOOP):
    """Return the arguments that pyarrow gets for a URI."""
    config = mp.Config(options or {}, hadoop=hadoop)
    filesystem, root = s3_filesystem(uri, s3_settings(uri, config))
    _, (told,) = filesystem.__reduce__()
    return {**told, "root": root}


@pytest.fixture(scope="module")
def server():
    """A server that checks credentials, with a bucket."""
    with s3_server.s3_server() as started:
        started.make_bucket("checked")
        with s3_server.checked(started) as strict:
            yield strict


def settings_of(server, **changes):
    """Return Millpond's options for a server."""
    given = {
        "endpoint": f"http://{server.address}",
        "region": s3_server.REGION,
        "access-key": server.access_key,
        "secret-key": server.secret_key,
    }
    return mp.Config({f"checkpoint.s3.{key}": value for key, value in {**given, **changes}.items()})


def test_credentials_by_configuration(server):
    """The configured credentials are used, and wrong ones are refused with a cure."""
    storage = mp.checkpoint_storage("s3://checked/jobs", config=settings_of(server))
    storage.write("a/b", [b"x"])
    assert storage.read_all("a/b") == b"x"
    assert pickle.loads(pickle.dumps(storage)).list("") == ["a/b"]
    assert server.files("checked") == ["jobs/a/b"]
    wrong = settings_of(server, **{"secret-key": "guessed"})
    with pytest.raises(errors.StorageAccessError, match="right to list, read, write") as caught:
        mp.checkpoint_storage("s3://checked/jobs", config=wrong).write("a/c", [b"x"])
    assert "guessed" not in str(caught.value)


def test_everything_that_takes_a_configuration_goes_by_it(server, tmp_path):
    """Savepoints are written, sealed, re-keyed, restored and queried with configured credentials."""
    config = settings_of(server)
    other = "s3://checked/rekeyed"
    total = mp.ValueStateDescriptor("total", int)
    with mp.open_keyed_backend("heap", key_type=str, config=config) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(total).update(7)
        taken = backend.savepoint(1, mp.checkpoint_storage("s3://checked/saved", config=config))
        place = f"s3://checked/saved/{taken.result().handle.folder}"
    mp.seal_savepoint(place, config=config)
    mp.rekey_savepoint(place, other, 64, config=config)
    with mp.open_keyed_backend(
        "lmdb", key_type=str, max_parallelism=64, directory=tmp_path, restore=[other], config=config
    ) as backend:
        backend.set_current_key("k")
        assert backend.get_partitioned_state(total).value() == 7


def test_hadoops_settings_are_taken_for_s3a():
    """For `s3a://` Hadoop's settings of the bucket come before general ones; `s3://` ignores both."""
    found = reached("s3a://mine/a/b")
    assert found["root"] == "mine/a/b"
    assert (found["access_key"], found["secret_key"]) == ("mine", "mine's")
    assert (found["endpoint_override"], found["scheme"]) == ("store:9000", "http")
    assert found["region"] == "eu-west-1"
    assert not found["force_virtual_addressing"]
    assert reached("s3a://other/a")["access_key"] == "all"
    assert s3_settings("s3://mine/a", mp.Config(hadoop=HADOOP)) == S3Config()


def test_hadoops_name_of_amazon_is_no_endpoint():
    """With an empty endpoint, or Amazon's own host name, the region is still looked up."""
    for none in ("", "s3.amazonaws.com"):
        config = mp.Config(hadoop={"fs.s3a.endpoint": none})
        assert s3_settings("s3a://mine/a", config).endpoint is None


def test_what_comes_first():
    """The URI comes before Millpond's options, then Hadoop's; settings are never mixed."""
    options = {**KEYS, "checkpoint.s3.endpoint": "mill:1", "checkpoint.s3.ssl": "false"}
    found = reached("s3a://mine/a", options)
    assert (found["access_key"], found["secret_key"], found["session_token"]) == SECRETS
    assert (found["endpoint_override"], found["scheme"]) == ("mill:1", "http")
    assert found["region"] != "eu-west-1"
    uri = "s3a://uri:its@mine/a?endpoint_override=uri:2&scheme=https&region=us-west-2"
    found = reached(uri, options)
    assert (found["access_key"], found["secret_key"], found["session_token"]) == (
        "uri",
        "its",
        "",
    )
    assert (found["endpoint_override"], found["scheme"]) == ("uri:2", "https")
    assert found["region"] == "us-west-2"
    virtual = {**options, "checkpoint.s3.path-style": "false"}
    assert reached("s3a://mine/a", virtual)["force_virtual_addressing"]
    in_host = {**HADOOP, "fs.s3a.path.style.access": "false"}
    assert reached("s3a://mine/a", hadoop=in_host)["force_virtual_addressing"]


def test_secrets_are_shown_nowhere():
    """No repr, and no error about a wrong value, URI or URI option, contains a secret."""
    config = mp.Config({**KEYS, "checkpoint.s3.region": "r"}, hadoop={"fs.s3a.secret.key": "hush"})
    shown = [repr(config), str(config), repr(config.checkpoint)]
    storage = mp.checkpoint_storage("s3://WHO:hush@bucket/x?region=r", config=config)
    shown += [repr(storage), repr(mp.SavepointHandle(0, "", storage))]
    wrong = [{key: [value]} for key, value in KEYS.items()]
    wrong += [{f"{key}.more": value} for key, value in KEYS.items()]
    wrong += [{key: value, key.replace("-", "_"): value} for key, value in KEYS.items()]
    for options in wrong:
        with pytest.raises(errors.ConfigError) as caught:
            mp.Config(options)
        shown.append(str(caught.value))
    for secret in ("hush", "hu%sh", "hu sh", "hu/sh"):
        for options in ({}, KEYS):
            with pytest.raises(errors.ConfigError) as caught:
                mp.checkpoint_storage(
                    f"s3://WHO:{secret}@bucket/x?colour=red", config=mp.Config(options)
                )
            shown += [str(caught.value), str(caught.value.__cause__)]
            assert secret not in "".join(shown)
    assert not [text for text in shown if any(secret in text for secret in SECRETS)]


def test_paths_are_shown_whole():
    """A port, and an `@` further on in a path, belong to the path."""
    from millpond.storage.checkpoint_storage import public_uri

    assert public_uri("hdfs://name:9000/a@b") == "hdfs://name:9000/a@b"
    assert public_uri("s3://bucket/a@b?region=r") == "s3://bucket/a@b"
    assert public_uri("s3://u:p/w@bucket/a") == "s3://bucket/a"


@pytest.mark.parametrize("options", ["?scheme=http&endpoint_override=", None])
def test_a_file_is_written_by_one_request_until_it_is_large(server, options, monkeypatch):
    """A small file is written by one request; a large one is complete too.

    Whether the URI says how the store is reached or the configuration does.
    """
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    uri, config = "s3://checked/written", settings_of(server)
    if options is not None:
        uri, config = f"{uri}{options}{server.address}&region={s3_server.REGION}", mp.Config()
    storage = mp.checkpoint_storage(uri, config=config)
    large = bytes(range(256)) * 50_000
    storage.write("first/small", [b"opens the connection"])
    with s3_server.heard_requests() as heard:
        storage.write("first/small", [b"a", b"b" * 1000])
        assert heard == (["PUT"] if s3_server.IN_ONE_REQUEST else ["POST", "PUT", "POST"])
        heard.clear()
        storage.write("first/parts", [large[: 1 << 20]] * 25)
        assert sorted(heard) == ["POST"] * 2 + ["PUT"] * 3  # as `millpond plan` counts
        storage.write("first/large", [large, large])
    assert storage.read("first/small", 0, 1001) == b"a" + b"b" * 1000
    assert storage.read_all("first/large") == large * 2
    storage.write("first/empty", [])
    assert storage.size("first/empty") == 0


def test_a_file_that_is_given_up_is_not_there(server):
    """If writing a file is aborted, its sent parts are removed."""
    storage = mp.checkpoint_storage("s3://checked/given-up", config=settings_of(server))
    for size in (10, 12 << 20):
        writer = storage.open_writer("file")
        writer.write(bytes(size))
        writer.abort()
        assert storage.list("") == []


def test_a_bucket_that_does_not_exist_is_named_when_the_file_is_complete(server):
    """A missing bucket is named when the file is completed, because that can be the first request."""
    storage = mp.checkpoint_storage("s3://no-such-bucket/x", config=settings_of(server))
    with pytest.raises(errors.StorageAccessError, match="no-such-bucket"):
        storage.write("file", [b"x"])
