"""Serializers, key codecs and their snapshots."""

from millpond.types.base import (
    Compatibility,
    DeclaredType,
    FindSerializer,
    Outcome,
    PicklePermission,
    SerializerSnapshot,
    TypeSerializer,
    no_serializer,
)
from millpond.types.class_fields import renamed_from
from millpond.types.key_codecs import (
    VOID_NAMESPACE,
    DeclaredKeyType,
    KeyCodec,
    VoidKeyCodec,
    VoidNamespace,
)
from millpond.types.pickle_serializer import PickleSerializer
from millpond.types.serializer_lookup import (
    assign_to_key_group,
    infer_key_type,
    key_codec_for,
    serializer_for,
)

__all__ = [
    "VOID_NAMESPACE",
    "Compatibility",
    "DeclaredKeyType",
    "DeclaredType",
    "FindSerializer",
    "KeyCodec",
    "Outcome",
    "PicklePermission",
    "PickleSerializer",
    "SerializerSnapshot",
    "TypeSerializer",
    "VoidKeyCodec",
    "VoidNamespace",
    "assign_to_key_group",
    "infer_key_type",
    "key_codec_for",
    "no_serializer",
    "renamed_from",
    "serializer_for",
]
