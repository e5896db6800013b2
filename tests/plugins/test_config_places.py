"""An error about a configuration value names the source, and the key as written there."""

import itertools
import sys
import types
from pathlib import Path

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.config.structuring import known_keys
from millpond.operator.opening import configured_backend
from millpond.plugins.registry import effective_rules
from millpond_cli import run as run_command
from millpond_cli.jobfile import JobFile, JobSection, SinkSection, SourceSection
from millpond_heap import HeapStateBackend
from millpond_lmdb.options import LmdbOptions
from millpond_rocksdb.options import ColumnOptions, RocksDBOptions

FREE = {
    "state.snapshot.strategy",
    "metrics.prometheus-address",
    "checkpoint.s3.endpoint",
    "checkpoint.s3.region",
    "checkpoint.s3.access-key",
    "checkpoint.s3.secret-key",
    "checkpoint.s3.session-token",
}
"""Options that accept any name; a wrong name is refused when it is looked up (see below)."""

TEXTS = {"plugins.allow", "plugins.block", "backend.rocksdb.properties"}
"""Options that accept any text as a list of names."""

WRONG_TEXTS = {"state.backend": "hip", "metrics.reporters": "carrier-pigeon"}


def every_key():
    """Yield all keys, with the backend of backend options, and sections besides values."""
    core = [key for key in mp.Config.known_keys() if key != "backend"]
    yield from (("heap", key) for key in core)
    options = {"rocksdb": RocksDBOptions, "lmdb": LmdbOptions}
    for backend, cls in options.items():
        yield from ((backend, key) for key in known_keys(cls, ("backend", backend)))
    yield from (("rocksdb", key) for key in known_keys(ColumnOptions, ("backend.rocksdb.state.s",)))


KEYS = sorted(set(every_key()))


def is_section(key):
    """Return whether a key is a section, or is followed by a name."""
    return any(other.startswith(f"{key}.") for _, other in KEYS)


def wrong_values(key):
    """Return strings that the key refuses, and values of the wrong type in TOML or Python."""
    if is_section(key):
        return ["perhaps", 3]
    if key in WRONG_TEXTS:
        return [WRONG_TEXTS[key]]
    text = key in ("checkpoint.dir", "checkpoint.restore")
    return [] if key in FREE | TEXTS or text else ["wet", "-7"]


def refused(backend, make):
    """Return the error that refuses a configuration, when it is read or when a job is built."""
    with pytest.raises(errors.MillpondError) as caught:
        configured_backend(make())
    assert isinstance(caught.value, (errors.ConfigError, errors.PluginError)), backend
    return str(caught.value)


def chosen(backend, key):
    """Return settings with the backend of an option, unless that is the tested key."""
    beside = key in ("state.backend", "state")
    return {} if beside or backend == "heap" else {"state.backend": backend}


CASES = [(backend, key, value) for backend, key in KEYS for value in wrong_values(key)]


def test_there_are_enough_cases():
    """Each key refuses something, except keys that accept any text."""
    covered = {key for _, key, _ in CASES}
    free = {key for _, key in KEYS} - covered
    assert free == FREE | TEXTS | {"checkpoint.dir", "checkpoint.restore"}
    assert len(CASES) > 100


@pytest.mark.parametrize(("backend", "key", "value"), CASES)
def test_from_spark(backend, key, value):
    """The error names the whole key of Spark's configuration."""
    for written in (key, key.replace("-", "_")):
        conf = {**chosen(backend, key), written: str(value)}
        items = [(f"spark.millpond.{name}", text) for name, text in conf.items()]
        said = refused(backend, lambda given=items: mp.Config.from_spark_conf(given))
        assert said.startswith(f"Spark configuration: spark.millpond.{written}: "), said


@pytest.mark.parametrize(("backend", "key", "value"), CASES)
def test_from_python(backend, key, value):
    """The error names the key as it was given, dotted or in sections."""
    conf = chosen(backend, key)
    said = refused(backend, lambda: mp.Config({**conf, f"millpond.{key}": value}))
    assert said.startswith(f"Config(...): millpond.{key}: "), said
    head, *parts = key.replace("-", "_").split(".")
    section = value
    for part in reversed(parts):
        section = {part: section}
    said = refused(backend, lambda: mp.Config(conf, **{head: section}))
    assert said.startswith(f"Config(...): {'.'.join((head, *parts))}: "), said


def files_with(backend, key, value):
    """Return TOML texts that set a key, as tables and inline."""
    literal = repr(value)
    parts = ["millpond", *key.split(".")]
    beside = [f'"{k}" = "{v}"' for k, v in chosen(backend, key).items()]
    # The same last word elsewhere in the file must not be mistaken for it.
    decoy = [f"# {parts[-1]} = 1", "[other]", f"{parts[-1]} = 1", f"text = '''\n{parts[-1]} = 2'''"]
    for at in range(1, len(parts)):
        table, rest = ".".join(parts[:at]), ".".join(parts[at:])
        lines = [*decoy, "[millpond]", *beside]
        lines += [f"[{table}]"] if at > 1 else []
        yield "\n".join([*lines, f"{rest} = {literal}", "[after]", f"{parts[-1]} = 1", ""])
    inline = literal
    for part in reversed(parts[2:]):
        inline = f"{{ {part} = {inline} }}"
    if not (beside and parts[1] == "state"):
        yield "\n".join([*decoy, "[millpond]", *beside, f"{parts[1]} = {inline}", ""])


@pytest.mark.parametrize(("backend", "key", "value"), CASES)
def test_from_a_file(tmp_path, backend, key, value):
    """The error names file and key for each form of TOML."""
    path = tmp_path / "millpond.toml"
    for text in files_with(backend, key, value):
        path.write_text(text)
        said = refused(backend, lambda: mp.Config.from_toml(path))
        assert said.startswith(f"{path}: millpond.{key}: "), (text, said)


@pytest.mark.parametrize("section", ["", "state.", "state.snapshot.", "backend.rocksdb."])
def test_unknown_keys(tmp_path, section):
    """An unknown key is refused in the same way; the suggestion has the source's form."""
    config = {"state.backend": "rocksdb"} if "rocksdb" in section else {}
    spark = [(f"spark.millpond.{k}", v) for k, v in {**config, f"{section}zzz": "1"}.items()]
    said = refused(section, lambda: mp.Config.from_spark_conf(spark))
    assert said.startswith(f"Spark configuration: spark.millpond.{section}zzz: is not a known key")
    path = tmp_path / "m.toml"
    path.write_text(f"[millpond]\n'state.bakend' = 1\n{section}zzz = 1\n")
    said = refused(section, lambda: mp.Config.from_toml(path))
    assert "m.toml: millpond.state.bakend" in said
    assert "Did you mean 'millpond.state.backend'?" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nplugins.block = ['heap']\n", "plugins.block: is outside the table [millpond]"),
        ("[plugins]\nblock = []\n", "Did you mean 'millpond.plugins.block'?"),
        ("[millpond]\n[restore]\nmax-states = 1\n", "restore.max-states: is outside"),
        ("max_parallelism = 4\n", "max_parallelism: is outside the table [millpond]"),
        ("[millpond]\nparallelism = 1\n[spark]\nmillpond.parallelism = 2\n", "spark.millp"),
        ("[millpond]\nlocal.dir = 'x'\n[local]\ndir = 'y'\n", "local.dir: is outside"),
        ("[milpond.plugins]\nblock = []\n", "milpond: the file has no table [millpond]"),
        ("[tool.other]\na = 1\n", "tool: the file has no table [millpond]"),
        ("[millpond]\n[spark.millpond]\nparallelism = 2\n", "Did you mean 'millpond.parallelism'?"),
        ("[millpond]\n[backend.lmdb]\nsync = true\n", "backend.lmdb.sync: is outside"),
    ],
)
def test_what_stands_outside_of_the_table(tmp_path, text, said):
    """A file with keys outside of the table is refused, with the correct form."""
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(errors.ConfigError) as caught:
        mp.Config.from_toml(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_other_tables_may_stand_beside_it(tmp_path):
    """A file may contain tables of other programs; an empty file gives the defaults."""
    path = tmp_path / "m.toml"
    others = "[tool.other]\na = 1\n[metrics]\nport = 9090\n[spark]\nsql.x = 1\n"
    path.write_text(f"{others}[millpond]\nplugins.block = ['lmdb']\n")
    assert mp.Config.from_toml(path).plugins.block == ("lmdb",)
    path.write_text("# nothing yet\n")
    assert mp.Config.from_toml(path) == mp.Config()


@pytest.mark.parametrize("value", ["perhaps", "2"])
def test_from_the_environment(value):
    """The error about a rule in the environment names the variable."""
    rules = mp.Config().plugins
    with pytest.raises(errors.ConfigError, match="^environment: MILLPOND_PLUGINS_DISABLE_ALL: "):
        effective_rules(rules, {"MILLPOND_PLUGINS_DISABLE_ALL": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state.snapshot.strategy", "later"),
        ("backend.rocksdb.memory", "1kb"),
        ("backend.rocksdb.properties", "num-nothings"),
    ],
)
def test_what_only_an_opened_backend_refuses(tmp_path, key, value):
    """An error that only an opened backend can find names source and key too."""
    spark = mp.Config.from_spark_conf([(f"spark.millpond.{key}", value)])
    with pytest.raises(errors.ConfigError, match=f"^Spark configuration: spark.millpond.{key}: "):
        mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path, config=spark)


def test_a_value_that_is_given_twice():
    """A key in two spellings is refused, and so is a value with the name of a section."""
    twice = {"max-parallelism": 64, "max_parallelism": 32}
    with pytest.raises(errors.ConfigError, match=r"max_parallelism: is given twice"):
        mp.Config(twice)
    both = [{"state.backend.x": 1}, {"state.backend": "heap"}]
    for first, second in itertools.permutations(both):
        with pytest.raises(errors.ConfigError, match=r"state\.backend.*(section|value)"):
            mp.Config({**first, **second})


def test_options_of_a_backend_in_a_module_with_dots(monkeypatch):
    """Options of a backend `module:attr` with dots reach it, and a wrong one names its key."""

    class Store(HeapStateBackend):
        MILLPOND_API = 1

        def check_options(self, options):
            if "size" in options:
                raise errors.ConfigError("backend.my.store:Store.size", "is wrong")

    module = types.ModuleType("my.store")
    module.Store = Store
    monkeypatch.setitem(sys.modules, "my", types.ModuleType("my"))
    monkeypatch.setitem(sys.modules, "my.store", module)
    name = "my.store:Store"
    config = mp.Config({"state.backend": name, f"backend.{name}.size": 1})
    assert config.backend_options(name) == {"size": 1}
    with pytest.raises(errors.ConfigError, match=rf"backend\.{name}\.size: is wrong"):
        configured_backend(config)


JOB = """\
[source]
format = "json"
schema = "k string"
path = "in"
[job]
uid = "u"
function = "m:F"
key = ["k"]
output = "k string"
[sink]
format = "json"
checkpoint = "c"
"""
SECTIONS = {"source": SourceSection, "job": JobSection, "sink": SinkSection}
JOB_KEYS = [f"{name}.{key}" for name, cls in SECTIONS.items() for key in attrs.fields_dict(cls)]


@pytest.mark.parametrize("key", JOB_KEYS)
def test_sections_of_a_job_file(tmp_path, key):
    """A wrong, empty or missing value is refused with file and key."""
    path = tmp_path / "job.toml"
    section, _, name = key.partition(".")
    at = JOB.split("\n").index(f"[{section}]") + 1
    without = [line for line in JOB.split("\n") if not line.startswith(f"{name} =")]
    if name in ("format", "path"):
        without = JOB.split("\n")
        without = [*without[:at], *(x for x in without[at:] if not x.startswith(f"{name} ="))]
    given = [f"{name} = 3.5", f'{name} = ""'] if name != "options" else [f"{name} = 3"]
    for line in given:
        path.write_text("\n".join([*without[:at], "# here", line, *without[at:]]))
        with pytest.raises(errors.ConfigError) as caught:
            JobFile.read(path)
        assert str(caught.value).startswith(f"{path}: {key}: "), line
    path.write_text(JOB.replace(f"[{section}]", f"[{section}]\nzzz = 1"))
    with pytest.raises(errors.ConfigError, match=rf"job\.toml: {section}\.zzz: is not a known"):
        JobFile.read(path)


def test_what_spark_refuses_of_a_job_file(tmp_path):
    """A Spark setting or argument that Spark refuses is reported with the file's key."""
    path = tmp_path / "job.toml"
    path.write_text(JOB + "[millpond]\nstate.snapshot.strategy = 'later'\n[spark]\nx = 1\n")
    job = JobFile.read(path)
    told = {
        ("spark.millpond.state.snapshot.strategy", "Spark configuration"): (
            "millpond.state.snapshot.strategy: why."
        ),
        ("null_keys", "key_by(null_keys=...)"): "job.null_keys: why.",
        ("null_keys", "key_by(...)"): "job.key: null_keys: why.",
        ("nope", "key_by(...)"): "job.key: nope: why.",
        ("uid", "process(...)"): "job.uid: why.",
        ("job.function", "configuration"): "job.function: why.",
    }
    for (key, place), expected in told.items():
        with pytest.raises(errors.ConfigError) as caught, job.locating_errors():
            raise errors.ConfigError(key, "why", place)
        assert str(caught.value) == f"{path}: {expected}"


LISTS = """[millpond.plugins]
block = ["mystore", "other"]
[millpond.local]
dir = ["/a", "/b c"]
[millpond.metrics]
reporters = ["log"]
"""


def test_lists_of_a_job_file_reach_spark(tmp_path):
    """Lists in the file reach Spark's session with their meaning."""
    path = tmp_path / "job.toml"
    path.write_text(JOB + LISTS + '[spark]\njars.packages = ["a:b:1", "c:d:2"]\n')
    job = JobFile.read(path)
    assert mp.Config.from_spark_conf(job.settings.items()) == job.config
    assert job.config.plugins.block == ("mystore", "other")
    assert job.spark == {"spark.jars.packages": "a:b:1,c:d:2"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('millpond.local.dir = ["/a,b"]', "millpond.local.dir: str '/a,b' has a comma"),
        (
            'spark.jars = [["a"]]',
            "spark.jars: expected texts or numbers in the list, got list ['a']",
        ),
    ],
)
def test_lists_that_spark_cannot_hold(tmp_path, line, told):
    """An item with a comma, and a list in a list, are refused with line and key before Spark starts."""
    path = tmp_path / "job.toml"
    path.write_text(f"{line}\n{JOB}")
    with pytest.raises(errors.ConfigError) as caught:
        JobFile.read(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_places_of_a_job_file(tmp_path):
    """A path without a scheme is relative to the file; a URI remains unchanged."""
    (tmp_path / "job.toml").write_text(JOB)
    job = JobFile.read(tmp_path / "job.toml")
    assert job.uri("a:b") == str(tmp_path / "a:b")
    assert job.uri("s3a://bucket/a") == "s3a://bucket/a"


def test_options_of_a_job_file_reach_spark(tmp_path):
    """Dotted names, lists and booleans become the strings that Spark's sources and sinks expect."""
    path = tmp_path / "job.toml"
    options = '[sink.options]\nkafka.bootstrap.servers = "h:9092"\nlist = ["a", 2]\nheader = true\n'
    path.write_text(JOB + options)
    found = {"kafka.bootstrap.servers": "h:9092", "list": "a,2", "header": "true"}
    assert JobFile.read(path).sink.options == found
    path.write_text(JOB + '[sink.options]\nlist = ["a,b"]\n')
    with pytest.raises(errors.ConfigError, match=r"sink\.options\.list: .* has a comma"):
        JobFile.read(path)


def test_the_home_in_a_job_file(tmp_path, monkeypatch):
    """A path that begins with ~ is below the user's home directory."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "job.toml").write_text(JOB)
    job = JobFile.read(tmp_path / "job.toml")
    assert job.uri("~/snapshots") == str(tmp_path / "home" / "snapshots")
    assert job.uri("~other") == str(tmp_path / "~other")


@pytest.mark.spark
def test_spark_settings_of_a_job_file_win(spark, tmp_path):
    """Settings in [spark] override Millpond's recommendations."""
    path = tmp_path / "job.toml"
    path.write_text(JOB + "[spark]\nsql.shuffle.partitions = 16\n")
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    try:
        assert run_command._session(JobFile.read(path), None).conf.get(key) == "16"
    finally:
        spark.conf.set(key, before)


def test_the_job_file_of_the_docs(tmp_path):
    """The page's job file can be read, and shows each key of its sections."""
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "job-file.md"
    text = page.read_text().partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "job.toml").write_text(text)
    job = JobFile.read(tmp_path / "job.toml")
    assert job.config.checkpoint.dir == "snapshots"
    assert job.spark == {"spark.sql.session.timeZone": "UTC", "spark.master": "local[4]"}
    named = {line.partition(" = ")[0].replace("-", "_") for line in text.splitlines()}
    assert {name for cls in SECTIONS.values() for name in attrs.fields_dict(cls)} <= named
