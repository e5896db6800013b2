"""Configuration from Python, TOML and Spark, and refused values."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.config import ByteSize, structure_options

SAME = {
    "millpond.state.backend": "lmdb",
    "state.latency-track.enabled": "true",
    "buffer.max-bytes": "64mb",
    "backend.rocksdb.state.spent.bloom-bits": 5,
    "plugins.block": "a, b",
}


def test_three_sources_one_result(tmp_path):
    """Dotted keys, a TOML file and Spark's configuration give the same Config."""
    toml = tmp_path / "millpond.toml"
    toml.write_text(
        '[millpond]\nplugins.block = ["a", "b"]\nbuffer.max-bytes = "64mb"\n'
        '[millpond.state]\nbackend = "lmdb"\nlatency-track = { enabled = true }\n'
        "[millpond.backend.rocksdb.state.spent]\nbloom-bits = 5\n"
    )
    spark = {f"spark.millpond.{key.removeprefix('millpond.')}": v for key, v in SAME.items()}
    made = mp.Config(SAME)
    assert made == mp.Config.from_toml(toml) == mp.Config.from_spark_conf(spark.items())
    assert made.state.backend == "lmdb"
    assert made.buffer.max_bytes == 64 << 20
    assert made.plugins.block == ("a", "b")
    assert made.backend_options("rocksdb") == {"state": {"spent": {"bloom-bits": 5}}}


def test_sections_as_keywords():
    """Sections may be given as keyword arguments."""
    assert mp.Config(state={"backend": "lmdb"}).state.backend == "lmdb"
    assert mp.Config(parallelism=3).parallelism == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state.bakend": "x"}, r"state.bakend: is not a known key. Did you mean 'state.backend'"),
        ({"statee.backend": "x"}, r"Did you mean 'state.backend'"),
        ({"max-parallelism": "many"}, "max-parallelism: expected int, got str 'many'"),
        ({"state": "heap"}, "state: is a section"),
        ({"state.snapshot.max-deltas": 0}, "state.snapshot"),
        ({"buffer.max-bytes": "64 parsecs"}, "buffer.max-bytes: expected ByteSize"),
        ({"serialization.allow-pickle": "maybe"}, "allow-pickle: expected bool"),
    ],
)
def test_refused(options, message):
    """Unknown keys and wrong types are refused with their place and the nearest spelling."""
    with pytest.raises(errors.ConfigError, match=message) as caught:
        mp.Config(options, place="here")
    assert str(caught.value).startswith("here: ")


def test_wrong_files(tmp_path):
    """A missing file and one that is not TOML are refused by name."""
    with pytest.raises(errors.ConfigError, match="none.toml: file: No such file") as missing:
        mp.Config.from_toml(tmp_path / "none.toml")
    assert "TOML:" not in str(missing.value)
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(errors.ConfigError, match="bad.toml: file: is not TOML"):
        mp.Config.from_toml(tmp_path / "bad.toml")


def test_options_of_a_plugin():
    """A plugin's options are structured, and errors show their prefix."""
    import attrs

    @attrs.frozen
    class Options:
        size: ByteSize = ByteSize(1)

    assert structure_options(Options, {"size": "2kb"}, "x", "backend.y").size == 2048
    with pytest.raises(errors.ConfigError, match=r"backend.y.sise: .* 'backend.y.size'"):
        structure_options(Options, {"sise": 1}, "x", "backend.y")


def test_options_that_a_class_converts_or_refuses():
    """A converter runs before the validators, and a refusal of the whole class is a ConfigError."""
    import attrs

    modes = attrs.validators.in_(("fast", "safe"))

    @attrs.frozen
    class Options:
        mode: str = attrs.field(default="fast", converter=str.lower, validator=modes)
        size: int = 1

        def __attrs_post_init__(self):
            if self.mode == "safe" and self.size > 1:
                raise ValueError("safe needs the size 1")

    assert structure_options(Options, {"mode": "SAFE"}, "x", "backend.y").mode == "safe"
    with pytest.raises(errors.ConfigError, match=r"^x: backend.y: safe needs the size 1\.$"):
        structure_options(Options, {"mode": "safe", "size": 2}, "x", "backend.y")
    with pytest.raises(errors.ConfigError, match=r"^x: backend.y.mode: .* \(got 'slow'\)\.$"):
        structure_options(Options, {"mode": "slow"}, "x", "backend.y")


def test_special_file():
    """A device or pipe is refused as such, and never read: reading a pipe would wait."""
    with pytest.raises(errors.ConfigError, match=r"^/dev/null: file: is not a regular file\.$"):
        mp.Config.from_toml("/dev/null")


def test_instance_that_contains_itself():
    """An attrs instance that contains itself is refused, as a mapping is."""
    import attrs

    @attrs.define
    class Section:
        inner: object = None

    section = Section()
    section.inner = section
    with pytest.raises(errors.ConfigError, match="are nested too deeply"):
        mp.Config(state=section)


def test_options_of_a_backend_by_module_and_attribute():
    """A backend ``module:attr`` gets its options, also with underscores in its name."""
    config = mp.Config(backend={"my_store:MyBackend": {"cache_size": 3}})
    assert config.backend_options("my_store:MyBackend") == {"cache-size": 3}


BAD_FILES = {
    "binary": b"\x00\xff\xfe",
    "another encoding": "[millpond]\nparallelism = 1 # é".encode("latin-1"),
    "deeply nested": b"x = " + b"[" * 100_000,
    "deep tables": b"[millpond." + b"a." * 5_000 + b"b]\nc = 1",
    "deep inline tables": b"millpond = " + b"{ a = " * 400 + b"1" + b" }" * 400,
    "a huge number": b"[millpond]\nparallelism = " + b"9" * 5_000,
    "a value for a section": b"[millpond]\nstate = 3",
    "a value for all": b"millpond = 3",
    "a list for a section": b"[millpond]\nstate = [1]",
    "a section for a value": b"[millpond.parallelism]\nx = 1",
    "a section for a text": b"[millpond.state.backend]\nx = 1",
    "tables for a section": b"[[millpond.state]]\nbackend = 'heap'",
    "a value for a backend's options": b"[millpond.backend]\nrocksdb = 3",
    "a value for all backends": b"[millpond]\nbackend = 3",
    "not a number": b"[millpond.state.snapshot]\nbase-ratio = nan",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_wrong_in_odd_ways(tmp_path, name):
    """Whatever a file contains, the error is a ConfigError with the file's name."""
    path = tmp_path / "job.toml"
    path.write_bytes(BAD_FILES[name])
    with pytest.raises(errors.ConfigError, match=r"job\.toml") as refused:
        mp.Config.from_toml(path)
    assert len(str(refused.value)) < 100_000


def test_a_wrong_key_of_a_file_is_named(tmp_path):
    """An unknown key or a wrong value in a file is refused with the file's name."""
    path = tmp_path / "job.toml"
    path.write_text("# state\n[millpond]\nparallelism = 2\n[millpond.state]\nbakend = 'heap'\n")
    with pytest.raises(errors.ConfigError, match=r"job\.toml: millpond\.state\.bakend"):
        mp.Config.from_toml(path)
    path.write_text("[millpond]\n\nmax_parallelism = 'many'\n")
    with pytest.raises(
        errors.ConfigError, match=r"job\.toml: millpond\.max_parallelism: expected int"
    ):
        mp.Config.from_toml(path)


def test_a_changed_copy_keeps_the_rest():
    """``attrs.evolve`` changes one section, and errors still name the source of the others."""
    config = mp.Config({"state.backend": "lmdb", "parallelism": 3}, place="job.toml")
    changed = attrs.evolve(config, buffer=attrs.evolve(config.buffer, max_bytes=1))
    assert (changed.state.backend, changed.parallelism) == ("lmdb", 3)
    assert changed.buffer.max_bytes == 1
    assert changed.place == config.place
