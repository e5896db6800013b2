"""Every error that Millpond raises on purpose.

Each class reads as a sentence, carries its data as fields and survives pickling (errors
travel from Spark's workers to the driver). The message says what was wrong, where, and
what to do.
"""

from millpond.errors.arguments import ArgumentTypeError, ArgumentValueError
from millpond.errors.base import MillpondError, brief, printable, shown
from millpond.errors.config import ConfigError
from millpond.errors.functions import (
    FunctionResultError,
    HarnessNotOpenError,
    NoKeysError,
    OutputTypeError,
    SeveralOperatorsError,
    UnknownColumnError,
    UnsupportedColumnError,
    UnsupportedQueryError,
    UserFunctionError,
    WindowStateError,
)
from millpond.errors.plugins import (
    BackendMismatchError,
    PluginBlockedError,
    PluginConflictError,
    PluginError,
    PluginIncompatibleError,
    PluginLoadError,
    PluginNotFoundError,
    UnsupportedCapabilityError,
)
from millpond.errors.snapshots import (
    ApiVersionError,
    CorruptSnapshotError,
    DirectoryNotEmptyError,
    IncompleteCheckpointError,
    RestoreError,
    SnapshotTooLargeError,
    StorageAccessError,
    StreamClosedError,
    UnclaimedStateError,
    UnsettledStartError,
)
from millpond.errors.state import (
    BackendClosedError,
    BackendFailedError,
    BulkCallError,
    KeyGroupRangeError,
    MaxParallelismError,
    NoCurrentKeyError,
    NullKeyError,
    NullValueError,
    StateConflictError,
    StateMigrationError,
    StateNameError,
    StateTypeError,
)
from millpond.errors.stores import (
    DirectoryInUseError,
    StoreAccessError,
    StoreDamagedError,
    StoreFullError,
    TooManyStatesError,
)
from millpond.errors.tools import JobError, PlaceError

__all__ = [
    "ApiVersionError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "BackendClosedError",
    "BackendFailedError",
    "BackendMismatchError",
    "BulkCallError",
    "ConfigError",
    "CorruptSnapshotError",
    "DirectoryInUseError",
    "DirectoryNotEmptyError",
    "FunctionResultError",
    "HarnessNotOpenError",
    "IncompleteCheckpointError",
    "JobError",
    "KeyGroupRangeError",
    "MaxParallelismError",
    "MillpondError",
    "NoCurrentKeyError",
    "NoKeysError",
    "NullKeyError",
    "NullValueError",
    "OutputTypeError",
    "PlaceError",
    "PluginBlockedError",
    "PluginConflictError",
    "PluginError",
    "PluginIncompatibleError",
    "PluginLoadError",
    "PluginNotFoundError",
    "RestoreError",
    "SeveralOperatorsError",
    "SnapshotTooLargeError",
    "StateConflictError",
    "StateMigrationError",
    "StateNameError",
    "StateTypeError",
    "StorageAccessError",
    "StoreAccessError",
    "StoreDamagedError",
    "StoreFullError",
    "StreamClosedError",
    "TooManyStatesError",
    "UnclaimedStateError",
    "UnknownColumnError",
    "UnsettledStartError",
    "UnsupportedCapabilityError",
    "UnsupportedColumnError",
    "UnsupportedQueryError",
    "UserFunctionError",
    "WindowStateError",
    "brief",
    "printable",
    "shown",
]
