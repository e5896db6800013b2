"""The smallest byte store there is: the core's own tests need no plugin's.

Named ``core.tests.memory_store:BACKEND``. ``STORES`` has every store that was opened, the latest last, so that
a test can look at physical keys and stored bytes.
"""

import millpond as mp
from millpond.backend import ByteStoreBackend
from millpond.spi import META_FAMILY, ByteStore, StateBackend

STORES = []


class MemoryStore(ByteStore):
    """Dictionaries by family, sorted at each look."""

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
        """The rows stay, to be looked at."""


class MemoryStoreBackend(ByteStoreBackend):
    """The core's byte-store base over such a store."""

    name = "memory"

    def open_store(self, directory):
        return MemoryStore()

    def destroy_store(self, directory):
        """Nothing lies in the directory."""


class MemoryStoreFactory(StateBackend):
    """The factory."""

    MILLPOND_API = 1
    name = "memory"
    capabilities = frozenset()

    def create_keyed_backend(self, parameters):
        return MemoryStoreBackend(parameters)


BACKEND = MemoryStoreFactory()


def open_memory(directory, clock=None, settings=None, **options):
    """A backend of text keys over such a store, at time 0 by default."""
    return mp.open_keyed_backend(
        "core.tests.memory_store:BACKEND",
        key_type=options.pop("key_type", str),
        directory=directory,
        clock=clock or mp.ManualClock(0),
        config=mp.Config(settings or {}),
        **options,
    )
