"""The description of a state in snapshots."""

from __future__ import annotations

import attrs

from millpond.arguments import INT64
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.ttl.ttl_config import TtlTime
from millpond.types import KeyCodec, SerializerSnapshot


@attrs.frozen
class StateMeta:
    """The description of a state in snapshots.

    Attributes:
        namespace, value, map_key: the descriptions of the types of namespaces, values and map keys.
        ttl_ms: the time to live in ms; None if values have no timestamps and never expire.
        watermark: the watermark at the time of the snapshot, if values expire by event time; -2**63
            before the first watermark. None if they expire by processing time, or never.
        query_name: the name under which clients find the state; empty if it is not queryable.
    """

    name: str
    kind: StateKind
    namespace: SerializerSnapshot
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None
    ttl_ms: int | None = None
    watermark: int | None = attrs.field(default=None, eq=False)
    query_name: str = attrs.field(default="", eq=False)

    @classmethod
    def from_descriptor(cls, descriptor: StateDescriptor, namespace_codec: KeyCodec) -> StateMeta:
        """Return the description of the state that a descriptor declares."""
        map_key, ttl = descriptor.map_key_codec(), descriptor.ttl_config
        return cls(
            name=descriptor.name,
            kind=descriptor.kind,
            namespace=namespace_codec.snapshot(),
            value=descriptor.value_serializer().snapshot(),
            map_key=map_key.snapshot() if map_key else None,
            ttl_ms=ttl.ttl_ms if ttl else None,
            watermark=INT64[0] if ttl and ttl.time is TtlTime.EVENT_TIME else None,
            query_name=descriptor.query_name or "",
        )

    @property
    def ttl(self) -> bool:
        """Whether each stored value has a timestamp."""
        return self.ttl_ms is not None
