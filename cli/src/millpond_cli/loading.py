"""The configuration of a command, and the loading of users' modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import click
from millpond.config import Config, RestoreConfig
from millpond.errors import UNPLACED, ConfigError, JobError, PlaceError, printable
from millpond.functions.functions import KeyedFunction
from millpond.plugins import PluginRegistry, get_registry
from millpond.snapshots.handles import SavepointHandle


def tool_registry() -> PluginRegistry:
    """Return the plugin registry under the rules of ``millpond --config``."""
    return get_registry(tool_config().plugins)


def directory_handle(path: str) -> SavepointHandle:
    """Return the handle of a directory, with the storages that ``millpond --config`` allows.

    Raises:
        PlaceError: no storage knows the directory.
    """
    try:
        return tool_registry().savepoint(path, tool_config())
    except ConfigError as error:
        if error.place != UNPLACED or error.key != "checkpoint.dir":
            raise
        raise PlaceError(printable(path), error.reason) from error


def tool_limits() -> RestoreConfig:
    """Return the limits on stored files that ``millpond --config`` sets."""
    return tool_config().restore


def tool_config() -> Config:
    """Return the configuration in the file of ``millpond --config``."""
    config = click.get_current_context().find_root().obj
    return config if isinstance(config, Config) else Config()


def load_function(target: str, folder: Path) -> KeyedFunction:
    """Load the function at ``module:name`` or ``file.py:name``: a class, instance or factory.

    Args:
        target: the module or file, and the name.
        folder: the folder that the path of a file is relative to.

    Raises:
        JobError: the module cannot be imported, or making the function fails.
        ConfigError: it names no module and function, or another object.
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
    """Return the message of an exception in a user's code, with the line that raised it."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    own = (str(Path(__file__).parents[1]), "<", sys.base_prefix, sys.prefix)
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if not frame.filename.startswith(own)]
    return f"{text} ({here[-1].filename}, line {here[-1].lineno})" if here else text


def _load_file(path: Path) -> ModuleType:
    """Import a file, and have its classes pickled by value, as workers may lack the file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # Under its stem a file json.py or queue.py would replace the module that others import.
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
