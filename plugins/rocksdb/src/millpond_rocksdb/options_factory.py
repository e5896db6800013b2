"""RocksDB's options in users' own hands, as Flink's ``RocksDBOptionsFactory`` gives them."""

from __future__ import annotations

from importlib import import_module

from millpond.errors import ConfigError, brief
from rocksdict import Options

_KEY = "backend.rocksdb.options-factory"


class RocksDBOptionsFactory:
    """Changes rocksdict's options after Millpond has set what is configured.

    What must stay as it is: ``raw_mode``, atomic flushes, creating what is missing, and the block
    cache and write-buffer manager that the stores of a process share.
    """

    def create_db_options(self, options: Options) -> Options:
        """The options of the database."""
        return options

    def create_column_options(self, options: Options, state: str) -> Options:
        """The options of a state's column family."""
        return options


def load_factory(target: str | None) -> RocksDBOptionsFactory:
    """The factory that ``module:attr`` names, an instance or what makes one.

    Raises:
        ConfigError: there is none, or importing or making it fails.
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
