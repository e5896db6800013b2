"""Users' changes of RocksDB's options, as with Flink's ``RocksDBOptionsFactory``."""

from __future__ import annotations

from importlib import import_module

from millpond.errors import ConfigError, brief
from rocksdict import Options

_KEY = "backend.rocksdb.options-factory"


class RocksDBOptionsFactory:
    """The last change of rocksdict's options, after Millpond has set the configured options.

    A factory must not change ``raw_mode``, atomic flushes, the creation of missing databases and
    column families, or the block cache and write-buffer manager that a process's stores share.
    """

    def create_db_options(self, options: Options) -> Options:
        """Return the options of the database."""
        return options

    def create_column_options(self, options: Options, state: str) -> Options:
        """Return the options of a state's column family."""
        return options


def load_factory(target: str | None) -> RocksDBOptionsFactory:
    """Return the factory that ``module:attr`` names: an instance, a class or a function.

    Raises:
        ConfigError: it cannot be imported or made.
    """
    if target is None:
        return RocksDBOptionsFactory()
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(_KEY, f"expected module:attr, got {brief(target)}")
    try:
        found = getattr(import_module(module), name)
        made = found if isinstance(found, RocksDBOptionsFactory) else found()
    except Exception as error:
        raise ConfigError(_KEY, f"{target}: {type(error).__name__}: {error}") from error
    if not isinstance(made, RocksDBOptionsFactory):
        kind = type(made).__name__
        raise ConfigError(_KEY, f"{target}: expected a RocksDBOptionsFactory, got {kind}")
    return made
