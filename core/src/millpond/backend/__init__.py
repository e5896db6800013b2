"""What a state backend is: the SPI, and the shared parts that backends are made of."""

from millpond.backend.capabilities import Capability
from millpond.backend.keyed import KeyedStateBackend
from millpond.backend.keyed_states import KeyedStates
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.spi import StateBackend
from millpond.backend.state_context import StateContext
from millpond.backend.state_view import StateView
from millpond.backend.tables import ABSENT, CellTable, MapTable
from millpond.operator_id import OperatorId
from millpond.state.state_meta import StateMeta

__all__ = [
    "ABSENT",
    "Capability",
    "CellTable",
    "KeyedBackendParameters",
    "KeyedStateBackend",
    "KeyedStates",
    "MapTable",
    "OperatorId",
    "StateBackend",
    "StateContext",
    "StateMeta",
    "StateView",
]
