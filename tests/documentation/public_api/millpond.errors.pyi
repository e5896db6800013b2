class ApiVersionError(RestoreError):
    def __init__(self): ...
    causes: tuple[str, ...]
    found: int
    made_at: object
    message: object
    def sentence(self) -> str: ...
    supported: int
    what: str

class ArgumentTypeError:
    def __init__(self): ...
    expected: str
    given: str
    made_at: object
    message: object
    parameter: str
    def sentence(self) -> str: ...

class ArgumentValueError:
    def __init__(self): ...
    expected: str
    given: str
    made_at: object
    message: object
    parameter: str
    def sentence(self) -> str: ...

class BackendClosedError(MillpondError):
    def __init__(self): ...
    backend: str
    made_at: object
    message: object
    def sentence(self) -> str: ...

class BackendFailedError(MillpondError):
    def __init__(self): ...
    backend: str
    cause: str
    made_at: object
    message: str
    place: str
    def sentence(self) -> str: ...

class BackendMismatchError(PluginError):
    def __init__(self): ...
    expected: str
    found: str
    made_at: object
    message: object
    name: str
    place: str
    def sentence(self) -> str: ...

class BulkCallError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    reason: str
    def sentence(self) -> str: ...
    state: str

class ConfigError(MillpondError):
    def __init__(self): ...
    key: str
    made_at: object
    message: str
    place: str
    reason: str
    def sentence(self) -> str: ...
    suggestion: str | None

class CorruptSnapshotError(MillpondError):
    def __init__(self): ...
    file: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class DirectoryInUseError(MillpondError):
    def __init__(self): ...
    backend: str
    directory: str
    made_at: object
    message: object
    def sentence(self) -> str: ...

class DirectoryNotEmptyError(MillpondError):
    def __init__(self): ...
    found: tuple[str, ...]
    made_at: object
    message: str
    path: str
    def sentence(self) -> str: ...
    unfinished: str

class EndlessTimersError(MillpondError):
    def __init__(self): ...
    limit: int
    made_at: object
    message: object
    def sentence(self) -> str: ...
    timestamp: int

class EventTimeChainError(MillpondError):
    def __init__(self): ...
    behind: str
    later: str
    made_at: object
    message: str
    policy: str
    def sentence(self) -> str: ...

class ForeachBatchError(MillpondError):
    def __init__(self): ...
    batch_id: int
    file: str
    line: int
    made_at: object
    message: str
    reason: str
    def sentence(self) -> str: ...

class FunctionResultError(MillpondError):
    def __init__(self): ...
    expected: str
    file: str
    line: int
    made_at: object
    message: str
    method: str
    def sentence(self) -> str: ...
    value: str

class HarnessNotOpenError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    method: str
    def sentence(self) -> str: ...

class IncompleteCheckpointError(RestoreError):
    def __init__(self): ...
    causes: tuple[str, ...]
    checkpoint_id: int
    folder: str
    made_at: object
    message: object
    def sentence(self) -> str: ...
    what: str

class JobError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...
    what: str

class KeyGroupRangeError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class LateChangeError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    def sentence(self) -> str: ...
    state: str

class MaxParallelismError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    requested: int
    def sentence(self) -> str: ...
    stored: int

class MillpondError:
    def __init__(self): ...
    made_at: object
    message: str
    def sentence(self) -> str: ...

class NoCurrentKeyError(MillpondError):
    def __init__(self): ...
    backend: str
    made_at: object
    message: object
    def sentence(self) -> str: ...

class NoEventTimeError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    def sentence(self) -> str: ...

class NoKeysError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    operator_uid: str
    def sentence(self) -> str: ...
    what: str

class NoWatermarkError(MillpondError):
    def __init__(self): ...
    column: str
    made_at: object
    message: str
    operator_uid: str
    def sentence(self) -> str: ...
    what: str

class NotInSavepointError(RestoreError):
    def __init__(self): ...
    causes: tuple[str, ...]
    kind: str
    known: tuple[str, ...]
    made_at: object
    message: str
    name: str
    def sentence(self) -> str: ...
    suggestion: str | None
    what: str

class NullKeyError(NullValueError):
    def __init__(self): ...
    columns: tuple[str, ...]
    made_at: object
    message: str
    operator_uid: str
    place: str
    row: str
    def sentence(self) -> str: ...
    what: str

class NullValueError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    place: str
    def sentence(self) -> str: ...
    what: str

class OperatorNotLoadedError(MillpondError):
    def __init__(self): ...
    function: str
    made_at: object
    message: str
    operator_uid: str
    reason: str
    def sentence(self) -> str: ...

class OutputModeError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    operator_mode: str
    operator_uid: str
    query_mode: str
    def sentence(self) -> str: ...

class OutputTypeError(MillpondError):
    def __init__(self): ...
    column: str
    expected: str
    fault: str
    file: str
    line: int
    made_at: object
    message: str
    method: str
    operator_uid: str
    reason: str
    row: str
    def sentence(self) -> str: ...
    side_output: str
    value: str

class PlaceError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    place: str
    reason: str
    def sentence(self) -> str: ...

class PluginBlockedError(PluginError):
    def __init__(self): ...
    made_at: object
    message: object
    name: str
    place: str
    rule: str
    def sentence(self) -> str: ...

class PluginConflictError(PluginError):
    def __init__(self): ...
    distributions: tuple[str, ...]
    made_at: object
    message: str
    name: str
    place: str
    def sentence(self) -> str: ...

class PluginError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    name: str
    place: str
    def sentence(self) -> str: ...

class PluginIncompatibleError(PluginError):
    def __init__(self): ...
    core_api: int
    distribution: str
    made_at: object
    message: str
    name: str
    place: str
    plugin_api: int
    def sentence(self) -> str: ...
    version: str

class PluginLoadError(PluginError):
    def __init__(self): ...
    distribution: str
    made_at: object
    message: object
    name: str
    place: str
    reason: str
    def sentence(self) -> str: ...
    target: str
    version: str

class PluginNotFoundError(PluginError):
    def __init__(self): ...
    installed: tuple[str, ...]
    known_distribution: str | None
    made_at: object
    message: str
    name: str
    place: str
    def sentence(self) -> str: ...
    suggestion: str | None

class RestoreError(MillpondError):
    def __init__(self): ...
    causes: tuple[str, ...]
    made_at: object
    message: str
    def sentence(self) -> str: ...
    what: str

class SerializerResultError(MillpondError):
    def __init__(self): ...
    expected: str
    found: str
    made_at: object
    message: str
    method: str
    place: str
    def sentence(self) -> str: ...
    serializer: str

class SeveralOperatorsError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: str
    def sentence(self) -> str: ...
    session: str
    uids: tuple[str, ...]

class SnapshotTooLargeError(MillpondError):
    def __init__(self): ...
    cure: str
    limit: int
    made_at: object
    message: str
    path: str
    def sentence(self) -> str: ...
    state: str

class StateConflictError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    name: str
    registered: str
    requested: str
    def sentence(self) -> str: ...

class StateMigrationError(MillpondError):
    def __init__(self): ...
    declared: str
    field: str
    made_at: object
    message: str
    part: str
    reason: str
    def sentence(self) -> str: ...
    state: str
    stored: str

class StateNameError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    name: str
    reason: str
    def sentence(self) -> str: ...

class StateTypeError(MillpondError):
    def __init__(self): ...
    expected: str
    made_at: object
    message: str
    place: str
    reason: str
    def sentence(self) -> str: ...
    value: str

class StorageAccessError(MillpondError):
    def __init__(self): ...
    cure: str
    made_at: object
    message: object
    path: str
    reason: str
    def sentence(self) -> str: ...

class StoreAccessError(MillpondError):
    def __init__(self): ...
    backend: str
    cure: str
    directory: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class StoreDamagedError(MillpondError):
    def __init__(self): ...
    backend: str
    directory: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class StoreFullError(MillpondError):
    def __init__(self): ...
    backend: str
    directory: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class TimeModeError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    operator_uid: str
    def sentence(self) -> str: ...

class TooManyStatesError(MillpondError):
    def __init__(self): ...
    backend: str
    limit: int
    made_at: object
    message: str
    option: str
    def sentence(self) -> str: ...
    state: str

class UnclaimedStateError(RestoreError):
    def __init__(self): ...
    causes: tuple[str, ...]
    made_at: object
    message: str
    operators: tuple[str, ...]
    def sentence(self) -> str: ...
    uids: tuple[str, ...]
    what: str

class UnknownColumnError(MillpondError):
    def __init__(self): ...
    column: str
    columns: tuple[str, ...]
    made_at: object
    message: str
    def sentence(self) -> str: ...
    suggestion: str | None

class UnsettledStartError(RestoreError):
    def __init__(self): ...
    causes: tuple[str, ...]
    command: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...
    what: str

class UnsupportedCapabilityError(MillpondError):
    def __init__(self): ...
    backend: str
    capability: str
    made_at: object
    message: object
    def sentence(self) -> str: ...

class UnsupportedColumnError(MillpondError):
    def __init__(self): ...
    column: str
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...
    spark_type: str

class UnsupportedQueryError(MillpondError):
    def __init__(self): ...
    made_at: object
    message: object
    reason: str
    def sentence(self) -> str: ...

class UserFunctionError(MillpondError):
    def __init__(self): ...
    file: str
    key: str
    line: int
    made_at: object
    message: str
    method: str
    operator_uid: str
    reason: str
    row: str
    def sentence(self) -> str: ...
    subtask: int

class WindowRangeError(MillpondError):
    def __init__(self): ...
    end: int
    made_at: object
    message: object
    def sentence(self) -> str: ...
    start: int
    time: int

class WindowStateError(MillpondError):
    def __init__(self): ...
    assigner: str
    made_at: object
    message: object
    def sentence(self) -> str: ...
    state: str

def brief(value: Any, limit: int = 120) -> str: ...

def printable(text: str) -> str: ...

def said(error: BaseException) -> str: ...

def shown(value: Any, limit: int = 120) -> str: ...
