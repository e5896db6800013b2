"""The description of a state in snapshots."""

from __future__ import annotations

import attrs

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import KeyCodec, SerializerSnapshot


@attrs.frozen
class StateMeta:
    """The description of a state in snapshots.

    Attributes:
        namespace, value, map_key: the descriptions of the types of namespaces, values and map keys.
        ttl_ms: the time to live in ms; None if values have no timestamps and never expire.
        query_name: the name under which clients find the state; empty if it is not queryable.
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
        """Return the description of the state that a descriptor declares."""
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
        """Whether each stored value has a timestamp."""
        return self.ttl_ms is not None
