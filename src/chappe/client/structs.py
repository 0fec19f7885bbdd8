"""User types: msgspec structs as values of variables (GS-021, GS-022).

On the wire a user type is called `struct:NAME:HASH`; the hash is of the names and types of its fields, so that two
programs agree exactly when they mean the same. A value is its length (2 bytes) and its fields as MessagePack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect

from chappe.errors import ChappeError
from chappe.wire.status import BLOCK_LIMIT, BLOCK_SIZE, VALUE_SIZE

BUILT_IN: dict[object, str] = {float: "float", int: "int", bool: "bool", bytes: "bytes"}
PREFIX = "struct:"
LENGTH_BYTES = 2
USUAL_LENGTH = 8 + 4 * BLOCK_SIZE - LENGTH_BYTES  # of an encoded struct, if its publisher does not say
TypeName = str | type[Any]


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type as the wire calls it, and how values of it become bytes and come back."""

    name: str
    encode: Callable[[Any], bytes] | None = None
    decode: Callable[[bytes], Any] | None = None


def value_type(kind: TypeName) -> ValueType:
    """What `type=` of a variable means: a name, float, int, bool, bytes, or a msgspec.Struct class."""
    if isinstance(kind, str):
        return ValueType(kind, None, _plain if kind.startswith(PREFIX) else None)
    if isinstance(kind, type):
        if kind in BUILT_IN:
            return ValueType(BUILT_IN[kind])
        if issubclass(kind, msgspec.Struct):
            return _struct(kind)
    raise TypeError(f"a type is float, int, bool, bytes or a msgspec.Struct class, not {kind!r}")


def decoder_of(name: str) -> Callable[[bytes], Any] | None:
    """How to read values of a type that was not named by its class: a struct becomes a dict."""
    return _plain if name.startswith(PREFIX) else None


def blocks_for(kind: str, length: int | None, derived: int) -> int:
    """Option blocks for values of up to `length` bytes; ValueError if they do not fit beside the derived values."""
    if length is None:
        length = USUAL_LENGTH if kind.startswith(PREFIX) else VALUE_SIZE
    elif kind != "bytes" and not kind.startswith(PREFIX):
        raise ValueError(f"length is for bytes and user types; a value of type {kind} has its own")
    if length < 1:
        raise ValueError(f"length is 1 byte or more, not {length}")
    needed = length + (LENGTH_BYTES if kind.startswith(PREFIX) else 0)
    blocks = -(-max(needed - VALUE_SIZE, 0) // BLOCK_SIZE)
    if blocks + derived > BLOCK_LIMIT:
        room = VALUE_SIZE + (BLOCK_LIMIT - derived) * BLOCK_SIZE - (needed - length)
        raise ValueError(f"a value has at most {room} bytes (beside {derived} derived values), not {length}")
    return blocks


def _struct(kind: type[msgspec.Struct]) -> ValueType:
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(kind)

    def encode(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"a value of type {kind.__name__} is expected, not {type(value).__name__}")
        raw = encoder.encode(value)
        return len(raw).to_bytes(LENGTH_BYTES, "big") + raw

    def decode(raw: bytes) -> Any:
        return _decoded(decoder.decode, raw, kind.__name__)

    return ValueType(f"{PREFIX}{kind.__name__}:{fingerprint(kind)}", encode, decode)


def _plain(raw: bytes) -> Any:
    return _decoded(msgspec.msgpack.decode, raw, "a user type")


def _decoded(decode: Callable[[bytes], Any], raw: bytes, name: str) -> Any:
    length = int.from_bytes(raw[:LENGTH_BYTES], "big")
    try:
        return decode(raw[LENGTH_BYTES : LENGTH_BYTES + length])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChappeError(f"the publisher sent bytes that are no {name}: {error}") from None


def fingerprint(kind: type[msgspec.Struct]) -> str:
    """Eight hex digits that depend on the names and types of the fields, nested ones too, and on nothing else."""
    return hashlib.sha256(_described(inspect.type_info(kind), ()).encode()).hexdigest()[:8]


def _described(info: Any, above: tuple[type, ...]) -> str:
    name = type(info).__name__
    if isinstance(info, inspect.StructType):
        if info.cls in above:
            return f"again:{info.cls.__name__}"  # a type that contains itself
        inside = (*above, info.cls)
        fields = ",".join(f"{each.encode_name}:{_described(each.type, inside)}" for each in info.fields)
        shape = "array" if info.array_like else "map"
        return f"{shape}({info.tag_field}={info.tag};{fields})"
    parts = []
    for field in sorted(info.__struct_fields__):
        value = getattr(info, field)
        if isinstance(value, inspect.Type):
            parts.append(f"{field}={_described(value, above)}")
        elif isinstance(value, tuple):
            members = (_described(each, above) if isinstance(each, inspect.Type) else repr(each) for each in value)
            parts.append(f"{field}=({','.join(members)})")
        elif isinstance(value, type) and issubclass(value, Enum):
            parts.append(f"{field}={[each.value for each in value]}")
        elif isinstance(value, type):
            parts.append(f"{field}={value.__name__}")
        elif value is not None:
            parts.append(f"{field}={value!r}")
    return f"{name}({','.join(parts)})"
