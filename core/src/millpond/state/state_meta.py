"""What a snapshot says of a state."""

from __future__ import annotations

import attrs

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import KeyCodec, SerializerSnapshot


@attrs.frozen
class StateMeta:
    """What a snapshot says about one state.

    Attributes:
        ttl_ms: the time to live in ms; None where values never expire and have no timestamps.
        query_name: under which clients find the state; empty where it is not queryable.
    """

    name: str
    kind: StateKind
    namespace: SerializerSnapshot
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None
    ttl_ms: int | None = None
    query_name: str = attrs.field(default="", eq=False)

    @classmethod
    def from_descriptor(cls, descriptor: StateDescriptor, namespace_codec: KeyCodec) -> StateMeta:
        """What a snapshot will say of a declared state."""
        map_key = descriptor.map_key_codec()
        return cls(
            name=descriptor.name,
            kind=descriptor.kind,
            namespace=namespace_codec.snapshot(),
            value=descriptor.value_serializer().snapshot(),
            map_key=map_key.snapshot() if map_key else None,
            ttl_ms=descriptor.ttl_config.ttl_ms if descriptor.ttl_config else None,
            query_name=descriptor.query_name or "",
        )

    @property
    def ttl(self) -> bool:
        """Whether a timestamp stands beside each value."""
        return self.ttl_ms is not None
