"""Results as they are published: a worker knows no class of user types, only what is in their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chappe.client.structs import LENGTH_BYTES, PREFIX

_encoder = msgspec.msgpack.Encoder()


def encoder_of(kind: str) -> Callable[[Any], Any]:
    """What makes of a result what can be published: mappings and structs become the bytes of a user type."""
    return _packed if kind.startswith(PREFIX) else lambda value: value


def _packed(value: Any) -> bytes:
    raw = _encoder.encode(value)
    return len(raw).to_bytes(LENGTH_BYTES, "big") + raw
