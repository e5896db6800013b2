"""The TOML file that describes a job, and the function that the file names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
from millpond.arguments import nearest
from millpond.config import Config, structure_options
from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import OptionSource, TomlFile, read_toml
from millpond.config.structuring import flatten, known_name
from millpond.errors import UNPLACED, ConfigError, JobError, brief
from millpond.functions.functions import KeyedFunction

from millpond_cli.targets import is_uri

_SECTIONS = frozenset({"source", "job", "sink", "millpond", "spark"})


@attrs.frozen
class SourceSection:
    """The section ``[source]``: the arguments for Spark's ``readStream``. Spark checks them."""

    format: str
    schema: str | None = None
    path: str | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class JobSection:
    """The section ``[job]``: the keyed function and the arguments of ``key_by`` and ``process``.

    Attributes:
        uid: the operator's uid.
        function: ``module:Class`` or ``file.py:Class``.
        key: the key columns.
        output: the output schema.
        null_keys: the treatment of rows in which a key column is null.
        null_event_times: the treatment of rows whose event time is null.
        order_by: the columns by which each key's rows are ordered.
        event_time: the column with the event time.
        watermark: the delay of Spark's ``withWatermark`` on the column ``event_time``.
        time_mode: the argument ``time_mode`` of ``process``.
    """

    uid: str
    function: str
    key: tuple[str, ...]
    output: str
    null_keys: str = "refuse"
    null_event_times: str = "refuse"
    order_by: tuple[str, ...] = ()
    event_time: str | None = None
    watermark: str | None = None
    time_mode: str | None = None


@attrs.frozen
class SinkSection:
    """The section ``[sink]``: the arguments for Spark's ``writeStream``."""

    format: str
    checkpoint: str
    path: str | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class JobFile:
    """The contents of a job file.

    Attributes:
        source: the section ``[source]``.
        job: the section ``[job]``.
        sink: the section ``[sink]``.
        config: the section ``[millpond]`` as a configuration.
        settings: the section ``[millpond]`` as settings of Spark.
        spark: the section ``[spark]`` as settings of Spark.
        folder: the folder of the file, to which relative paths in it refer.
        option_source: the file, as the source that errors name.
    """

    source: SourceSection
    job: JobSection
    sink: SinkSection
    config: Config
    settings: Mapping[str, Any]
    spark: Mapping[str, Any]
    folder: Path
    option_source: OptionSource

    @classmethod
    def read(cls, path: Path) -> JobFile:
        """Read the job file `path`.

        Raises:
            ConfigError: a section or key is missing, unknown or wrong.
        """
        file = read_toml(path)
        source = file.source()
        with source.locating_errors():
            unknown = sorted(set(file.tree) - _SECTIONS)
            if unknown:
                hint = nearest(unknown[0], _SECTIONS)
                raise ConfigError(unknown[0], "is not a known section", suggestion=hint)
            millpond = file.table("millpond")
            source_section = _with_options(_section(SourceSection, file, "source"), "source")
            job = _section(JobSection, file, "job")
            if job.watermark is not None and job.event_time is None:
                raise ConfigError("job.watermark", "is of a column: name it as event-time")
            return cls(
                source=source_section,
                job=job,
                sink=_with_options(_section(SinkSection, file, "sink"), "sink"),
                config=Config(millpond, place=file.source("millpond")),
                settings=_spark_texts(millpond, "spark.millpond"),
                spark=_settings(file),
                folder=path.resolve().parent,
                option_source=source,
            )

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Add to each ConfigError in the block the key and the line of the job file that caused it.

        The original error names a key of Spark's configuration, or an argument of ``key_by`` or
        ``process``.
        """
        try:
            yield
        except ConfigError as error:
            # Errors of key_by and process name an argument, or a column in the argument's value.
            call, _, rest = error.place.partition("(")
            argument = rest.removesuffix("=...)")
            field = ""
            if call in ("key_by", "process"):
                known = error.key if error.key in attrs.fields_dict(JobSection) else ""
                by_column = "key" if call == "key_by" else known
                field = argument if argument != rest else by_column
            if error.place == SPARK_SOURCE:
                error.place = UNPLACED
            elif field:
                if field != error.key:
                    error.reason = f"{error.key}: {error.reason}"
                error.key, error.place = f"job.{field}", UNPLACED
            self.option_source.locate(error)
            raise

    def uri(self, path: str) -> str:
        """Return `path`, a path or URI from the job file, in the form that is passed to Spark.

        A URI is unchanged. A path becomes absolute, and ``~`` becomes the user's home directory.
        """
        if is_uri(path):
            return path
        home = path == "~" or path.startswith("~/")
        return str(Path(path).expanduser() if home else self.folder / path)


def _settings(file: TomlFile) -> dict[str, str]:
    """Return the section ``[spark]`` as settings of Spark.

    Raises:
        ConfigError: a key belongs in ``[millpond]``, or has the prefix ``spark.`` twice.
    """
    settings = _spark_texts(file.table("spark"), "spark")
    with file.source("spark").locating_errors():
        for name in settings:
            given = name.removeprefix("spark.")
            plain = given.removeprefix("spark.")
            if plain.startswith("millpond."):
                key = plain.removeprefix("millpond.")
                raise ConfigError(given, f"belongs in [millpond]: write {key} there")
            if plain != given:
                raise ConfigError(given, f"is given spark. by the section: write {plain}")
    return settings


def _spark_texts(tree: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return nested TOML tables as settings of Spark.

    The keys are dotted and begin with `prefix`; the values are strings.
    """
    return {
        name: _joined(name, value) if isinstance(value, list) else _text(value)
        for name, value in flatten(tree, f"{prefix}.")
    }


def _text(value: Any) -> str:
    """Return a TOML value as a string for Spark's settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(key: str, items: list[Any]) -> str:
    """Return a list as a string for Spark's settings, separated by commas.

    Raises:
        ConfigError: an item is a list or a table, or has a comma.
    """
    for item in items:
        if isinstance(item, (list, Mapping)):
            raise ConfigError(key, f"expected texts or numbers in the list, got {brief(item)}")
        if "," in str(item):
            reason = "has a comma, which separates items for Spark: name it without one"
            raise ConfigError(key, f"{brief(item)} {reason}")
    return ",".join(map(_text, items))


def _with_options(section: Any, name: str) -> Any:
    """Return a copy of a section with dotted option names.

    TOML reads the option ``a.b = 1`` as a table ``a`` with the key ``b``.
    """
    prefix = f"{name}.options"
    flat = _spark_texts(section.options, prefix)
    options = {key.removeprefix(f"{prefix}."): value for key, value in flat.items()}
    return attrs.evolve(section, options=options)


def _section(cls: type[Any], file: TomlFile, name: str) -> Any:
    """Return the section `name` of the file as an instance of `cls`.

    Raises:
        ConfigError: the section or a key in it is missing, unknown, empty or wrong.
    """
    if name not in file.tree:
        raise ConfigError(f"[{name}]", "this section is missing")
    section = file.table(name)
    for key, value in section.items():
        known_name(cls, key, value, (name,))
    for field in attrs.fields(cls):
        given = section.get(field.name, section.get(field.name.replace("_", "-"), field.default))
        if given is attrs.NOTHING:
            raise ConfigError(f"{name}.{field.name}", "is missing")
        if given in ("", []) or (isinstance(given, list) and "" in given):
            raise ConfigError(f"{name}.{field.name}", "is empty")
    return structure_options(cls, section, UNPLACED, name)


def load_function(target: str, folder: Path) -> KeyedFunction:
    """Import a job's function, and return an instance of it.

    Args:
        target: ``module:name`` or ``file.py:name``. The name is that of a class, of an instance, or
            of a factory.
        folder: the folder to which the path of a file is relative.

    Raises:
        JobError: the module cannot be imported, or the class or factory raises an error.
        ConfigError: `target` has another form, or names an object that is not a KeyedFunction.
    """
    source, _, name = target.rpartition(":")
    if not source or not name:
        reason = f"{target!r} does not name a function; write module:Class or file.py:Class"
        raise ConfigError("job.function", reason)
    try:
        module = (
            _load_file(folder / source)
            if source.endswith(".py")
            else importlib.import_module(source)
        )
        found = getattr(module, name)
        made = found if isinstance(found, KeyedFunction) else found()
    except (Exception, SystemExit) as error:
        reason = error_with_line(error)
        if isinstance(error, ModuleNotFoundError) and error.name == source.partition(".")[0]:
            file = f"path/{source.replace('.', '/')}.py:{name}"
            reason = f"{error}; name its folder in PYTHONPATH, or the file itself as {file}"
        raise JobError(f"{target} cannot be loaded", reason) from error
    if not isinstance(made, KeyedFunction):
        kind = type(made).__name__
        expected = "a KeyedProcessFunction or VectorizedProcessFunction, or a factory of one"
        reason = f"expected {expected}, at {target!r}, got {kind}"
        raise ConfigError("job.function", reason)
    return made


def error_with_line(error: BaseException) -> str:
    """Return the message of an exception, with the last line of the user's code in its traceback.

    The user's code is all code outside of Millpond's command line and Python's installation.
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    own = (str(Path(__file__).parents[1]), "<", sys.base_prefix, sys.prefix)
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if not frame.filename.startswith(own)]
    return f"{text} ({here[-1].filename}, line {here[-1].lineno})" if here else text


def _load_file(path: Path) -> ModuleType:
    """Import a Python file as a module.

    The classes of the module are pickled by value, because Spark's workers may not have the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # Without the prefix, a file json.py or queue.py would replace Python's module of this name.
    name = f"millpond_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    with suppress(ImportError):  # without PySpark no worker needs the module
        from pyspark import cloudpickle  # noqa: PLC0415 - an extra

        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
