class ApiVersionError(RestoreError):
    found: int
    message: object
    supported: int

class ArgumentTypeError(MillpondError, TypeError):
    expected: str
    given: str
    message: object
    parameter: str

class ArgumentValueError(MillpondError, ValueError):
    expected: str
    given: str
    message: object
    parameter: str

class BackendClosedError(MillpondError):
    backend: str
    message: object

class BackendFailedError(MillpondError):
    backend: str
    cause: str
    message: object
    place: str

class BackendMismatchError(PluginError):
    expected: str
    found: str
    message: object

class BulkCallError(MillpondError, ValueError):
    reason: str
    state: str

class CallTimeoutError(MillpondError, TimeoutError):
    message: object
    seconds: float

class ConfigError(MillpondError, ValueError):
    key: str
    place: str
    reason: str
    suggestion: str | None

class CorruptSnapshotError(MillpondError):
    file: str
    message: object
    reason: str

class DirectoryInUseError(MillpondError):
    backend: str
    directory: str
    message: object

class DirectoryNotEmptyError(MillpondError):
    found: tuple[str, ...]
    path: str
    unfinished: str

class EndlessTimersError(MillpondError):
    limit: int
    message: object
    timestamp: int

class EventTimeChainError(MillpondError):
    behind: str
    later: str
    policy: str

class ForeachBatchError(MillpondError):
    batch_id: int
    file: str
    line: int
    reason: str

class FunctionResultError(MillpondError, TypeError):
    expected: str
    file: str
    line: int
    method: str
    value: str

class HarnessNotOpenError(MillpondError):
    message: object
    method: str

class IncompleteCheckpointError(RestoreError):
    checkpoint_id: int
    folder: str
    message: object

class JobError(MillpondError):
    message: object
    reason: str
    what: str

class KeyGroupRangeError(MillpondError, ValueError):
    message: object
    reason: str

class LateChangeError(MillpondError):
    message: object
    state: str

class MaxParallelismError(MillpondError):
    message: object
    requested: int
    stored: int

class MillpondError(Exception):
    def __init__(self): ...
    made_at: object
    message: str
    def sentence(self) -> str: ...

class NoCurrentKeyError(MillpondError):
    backend: str
    message: object

class NoEventTimeError(MillpondError):
    message: object

class NoKeysError(MillpondError):
    message: object
    operator_uid: str
    what: str

class NoWatermarkError(MillpondError):
    column: str
    operator_uid: str
    what: str

class NotInSavepointError(RestoreError):
    kind: str
    known: tuple[str, ...]
    name: str
    suggestion: str | None

class NullKeyError(NullValueError):
    columns: tuple[str, ...]
    operator_uid: str
    row: str

class NullValueError(MillpondError, ValueError):
    message: object
    place: str
    what: str

class OperatorNotLoadedError(MillpondError):
    function: str
    operator_uid: str
    reason: str

class OutputModeError(MillpondError):
    operator_mode: str
    operator_uid: str
    query_mode: str

class OutputTypeError(MillpondError, TypeError):
    column: str
    expected: str
    fault: str
    file: str
    line: int
    method: str
    operator_uid: str
    reason: str
    row: str
    side_output: str
    value: str

class PlaceError(MillpondError):
    place: str
    reason: str

class PluginBlockedError(PluginError):
    message: object
    rule: str

class PluginConflictError(PluginError):
    distributions: tuple[str, ...]

class PluginError(MillpondError):
    name: str
    place: str

class PluginIncompatibleError(PluginError):
    core_api: int
    distribution: str
    plugin_api: int
    version: str

class PluginLoadError(PluginError):
    distribution: str
    message: object
    reason: str
    target: str
    version: str

class PluginNotFoundError(PluginError, LookupError):
    installed: tuple[str, ...]
    known_distribution: str | None
    suggestion: str | None

class RestoreError(MillpondError):
    causes: tuple[str, ...]
    what: str

class SerializerResultError(MillpondError, TypeError):
    expected: str
    found: str
    message: object
    method: str
    place: str
    serializer: str

class SeveralOperatorsError(MillpondError):
    session: str
    uids: tuple[str, ...]

class SnapshotTooLargeError(MillpondError):
    cure: str
    limit: int
    path: str
    state: str

class StateConflictError(MillpondError):
    message: object
    name: str
    registered: str
    requested: str

class StateInCallError(MillpondError):
    message: object
    state: str

class StateMigrationError(MillpondError):
    declared: str
    field: str
    part: str
    reason: str
    state: str
    stored: str

class StateNameError(MillpondError, ValueError):
    message: object
    name: str
    reason: str

class StateTypeError(MillpondError, TypeError):
    expected: str
    place: str
    reason: str
    value: str

class StorageAccessError(MillpondError):
    cure: str
    message: object
    path: str
    reason: str

class StoreAccessError(MillpondError):
    backend: str
    cure: str
    directory: str
    message: object
    reason: str

class StoreDamagedError(MillpondError):
    backend: str
    directory: str
    message: object
    reason: str

class StoreFullError(MillpondError):
    backend: str
    directory: str
    message: object
    reason: str

class TimeModeError(MillpondError):
    message: object
    operator_uid: str

class TooManyStatesError(MillpondError):
    backend: str
    limit: int
    option: str
    state: str

class UnclaimedStateError(RestoreError):
    operators: tuple[str, ...]
    uids: tuple[str, ...]

class UnknownColumnError(MillpondError, KeyError, ValueError):
    column: str
    columns: tuple[str, ...]
    suggestion: str | None

class UnsettledStartError(RestoreError):
    command: str
    message: object
    reason: str

class UnsupportedCapabilityError(MillpondError, NotImplementedError):
    backend: str
    capability: str
    message: object

class UnsupportedColumnError(MillpondError, TypeError):
    column: str
    message: object
    reason: str
    spark_type: str

class UnsupportedQueryError(MillpondError):
    message: object
    reason: str

class UserFunctionError(MillpondError):
    file: str
    key: str
    line: int
    method: str
    operator_uid: str
    reason: str
    row: str
    subtask: int

class WindowRangeError(MillpondError, ValueError):
    end: int
    message: object
    start: int
    time: int

class WindowStateError(MillpondError):
    assigner: str
    message: object
    state: str

def brief(value: Any, limit: int = 120) -> str: ...

def printable(text: str) -> str: ...

def said(error: BaseException) -> str: ...

def shown(value: Any, limit: int = 120) -> str: ...
