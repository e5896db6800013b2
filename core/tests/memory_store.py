"""A minimal byte store, so that the core's tests need no plugin.

It is opened as ``core.tests.memory_store:BACKEND``. ``STORES`` contains every opened store, the
newest last, for tests that look at stored keys and bytes.
"""

import millpond as mp
from millpond.backend import ByteStoreBackend
from millpond.spi import META_FAMILY, ByteStore, StateBackend

STORES = []


class MemoryStore(ByteStore):
    """Store of a dictionary per family, which scans sort."""

    def __init__(self):
        self.rows = {META_FAMILY: {}}
        STORES.append(self)

    def families(self):
        return list(self.rows)

    def create_family(self, family):
        self.rows.setdefault(family, {})

    def get(self, family, key):
        return self.rows[family].get(key)

    def scan(self, family, start, end):
        for key in sorted(self.rows[family]):
            if key >= start and (end is None or key < end):
                yield key, self.rows[family][key]

    def write(self, batch):
        for family, changes in batch.items():
            for key, value in changes:
                if value is None:
                    self.rows[family].pop(key, None)
                else:
                    self.rows[family][key] = value

    def close(self):
        """Keep the rows for inspection."""


class MemoryStoreBackend(ByteStoreBackend):
    """Backend of the core's byte-store base over such a store."""

    name = "memory"

    def open_store(self, directory):
        return MemoryStore()

    def destroy_store(self, directory):
        """Do nothing: the directory is empty."""


class MemoryStoreFactory(StateBackend):
    """Factory of the backend."""

    MILLPOND_API = 1
    name = "memory"
    capabilities = frozenset()

    def create_keyed_backend(self, parameters):
        return MemoryStoreBackend(parameters)


BACKEND = MemoryStoreFactory()


def open_memory(directory, clock=None, settings=None, **options):
    """Open a backend with string keys over such a store, by default at time 0."""
    return mp.open_keyed_backend(
        "core.tests.memory_store:BACKEND",
        key_type=options.pop("key_type", str),
        directory=directory,
        clock=clock or mp.ManualClock(0),
        config=mp.Config(settings or {}),
        **options,
    )
