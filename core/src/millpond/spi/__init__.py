"""The service provider interface: every contract that a plugin implements, and the hooks.

A plugin imports this package, the base classes of ``millpond.backend``, and the core's public
packages: ``errors``, ``config``, ``state``, ``types``, ``storage``; for a snapshot strategy also
``snapshots``.
"""

from millpond.safe_decoding import decoding, unreadable
from millpond.spi.backend import (
    AddressChange,
    Amount,
    CellMigration,
    EntryStore,
    KeyedStates,
    RegisteredState,
    RestoreTarget,
    StateBackend,
    StateContext,
    StateSize,
    TableSource,
)
from millpond.spi.byte_store import (
    META_FAMILY,
    ByteStore,
    FamilySize,
    StoreReader,
    WriteBatch,
    fits_address_space,
    named,
    store_error,
)
from millpond.spi.hooks import API_VERSION, hookimpl
from millpond.spi.keys import CurrentKey, KeyLayout, SubtaskKeys, end_of_prefix
from millpond.spi.parameters import Capability, KeyedBackendParameters, memory_bytes
from millpond.spi.portable_rows import (
    APPENDED,
    Change,
    ChangeListener,
    Changes,
    EmptyView,
    Expiry,
    ListSerializer,
    StateShape,
    StateView,
    apply_to_lists,
    serialized,
)
from millpond.spi.snapshots import RestoreOperation, SnapshotResult, Strategy
from millpond.spi.tables import (
    ABSENT,
    CellTable,
    Held,
    KeySpan,
    MapTable,
    SortedMapTable,
    TimerRows,
)

__all__ = [
    "ABSENT",
    "API_VERSION",
    "APPENDED",
    "META_FAMILY",
    "AddressChange",
    "Amount",
    "ByteStore",
    "Capability",
    "CellMigration",
    "CellTable",
    "Change",
    "ChangeListener",
    "Changes",
    "CurrentKey",
    "EmptyView",
    "EntryStore",
    "Expiry",
    "FamilySize",
    "Held",
    "KeyLayout",
    "KeySpan",
    "KeyedBackendParameters",
    "KeyedStates",
    "ListSerializer",
    "MapTable",
    "RegisteredState",
    "RestoreOperation",
    "RestoreTarget",
    "SnapshotResult",
    "SortedMapTable",
    "StateBackend",
    "StateContext",
    "StateShape",
    "StateSize",
    "StateView",
    "StoreReader",
    "Strategy",
    "SubtaskKeys",
    "TableSource",
    "TimerRows",
    "WriteBatch",
    "apply_to_lists",
    "decoding",
    "end_of_prefix",
    "fits_address_space",
    "hookimpl",
    "memory_bytes",
    "named",
    "serialized",
    "store_error",
    "unreadable",
]
