"""Derived values: computed by the publisher from each value, carried in the last option blocks (GS-036, GS-046).

A block has 24 bytes: number of the pattern (4), type (2), length (2) and a value of up to 16 bytes, big-endian.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from chappe.wire.base import DerivedValue

if TYPE_CHECKING:
    from chappe.client._status import Watch

BLOCK = struct.Struct(">IHH16s")
VALUE_LIMIT = 16
TYPES = ("float", "int", "bool", "bytes")
Number = float | int | bool


class Derived(Protocol):
    """Anything with a name, a type and a value for each value that is published."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    def update(self, value: Any, created_ns: int) -> Number | bytes | None:
        """The derived value now that `value` is published; None: none yet."""


class _Window:
    """The last `size` values of a number; the subclass says what is made of them."""

    type = "float"

    def __init__(self, size: int, name: str) -> None:
        if size < 1:
            raise ValueError(f"a derived value looks at one value or more, not {size}")
        self.name = name
        self._values: deque[float] = deque(maxlen=size)

    def update(self, value: Any, created_ns: int) -> float:
        self._values.append(float(value))
        return self.summary(self._values)

    def summary(self, values: Sequence[float]) -> float:
        raise NotImplementedError


class Mean(_Window):
    """The mean of the last `size` values."""

    def __init__(self, size: int, name: str = "") -> None:
        super().__init__(size, name or f"mean({size})")

    def summary(self, values: Sequence[float]) -> float:
        return sum(values) / len(values)


class Minimum(_Window):
    """The least of the last `size` values."""

    def __init__(self, size: int, name: str = "") -> None:
        super().__init__(size, name or f"minimum({size})")

    def summary(self, values: Sequence[float]) -> float:
        return min(values)


class Maximum(_Window):
    """The largest of the last `size` values."""

    def __init__(self, size: int, name: str = "") -> None:
        super().__init__(size, name or f"maximum({size})")

    def summary(self, values: Sequence[float]) -> float:
        return max(values)


class RateOfChange:
    """Change a second between the last two values."""

    type = "float"

    def __init__(self, name: str = "rate") -> None:
        self.name = name
        self._last: tuple[float, int] | None = None

    def update(self, value: Any, created_ns: int) -> float | None:
        before, self._last = self._last, (float(value), created_ns)
        if before is None or created_ns == before[1]:
            return None
        return (float(value) - before[0]) * 1e9 / (created_ns - before[1])


class Custom:
    """`function(value, created_ns)` as a derived value of a name and type (float, int, bool or up to 16 bytes)."""

    def __init__(
        self, name: str, function: Callable[[Any, int], Number | bytes | None], *, type: str = "float"
    ) -> None:
        if type not in TYPES:
            raise ValueError(f"type {type!r} of derived value {name!r} is not one of {', '.join(TYPES)}")
        self.name = name
        self.type = type
        self._function = function

    def update(self, value: Any, created_ns: int) -> Number | bytes | None:
        return self._function(value, created_ns)


def patterns_of(derived: Sequence[Derived]) -> tuple[DerivedValue, ...]:
    """Derived values as they are registered; ValueError for names that are empty or doubled."""
    names = [each.name for each in derived]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"derived values have names of their own, not {names}")
    return tuple(DerivedValue(number, each.name, each.type) for number, each in enumerate(derived, 1))


def encode_blocks(derived: Sequence[Derived], value: Any, created_ns: int) -> bytes:
    """The option blocks of the derived values, brought up to date with `value`; one that has none yet is empty."""
    blocks = []
    for number, each in enumerate(derived, 1):
        raw = _encode(each, each.update(value, created_ns))
        blocks.append(BLOCK.pack(number, TYPES.index(each.type), len(raw), raw))
    return b"".join(blocks)


def _encode(derived: Derived, value: Number | bytes | None) -> bytes:
    if value is None:
        return b""
    try:
        match derived.type:
            case "float":
                return struct.pack(">d", value)
            case "int":
                return struct.pack(">q", value)
            case "bool":
                return bytes((bool(value),))
            case _:
                raw = bytes(value)  # type: ignore[arg-type]
    except (struct.error, TypeError) as error:
        raise ValueError(f"derived value {derived.name!r} is not of type {derived.type}: {error}") from None
    if len(raw) > VALUE_LIMIT:
        raise ValueError(f"derived value {derived.name!r} has {len(raw)} bytes, a block takes {VALUE_LIMIT}")
    return raw


def decode_blocks(patterns: Sequence[DerivedValue], blocks: bytes) -> dict[str, Any]:
    """Name -> value of the derived values in the last option blocks; what is not as announced is left out."""
    names = {pattern.number: pattern for pattern in patterns}
    found: dict[str, Any] = {}
    for start in range(max(0, len(blocks) - BLOCK.size * len(patterns)), len(blocks), BLOCK.size):
        number, code, length, raw = BLOCK.unpack_from(blocks, start)
        pattern = names.get(number)
        if pattern is not None and code < len(TYPES) and TYPES[code] == pattern.type and length <= VALUE_LIMIT:
            found[pattern.name] = _decode(pattern.type, raw[:length])
    return found


def _decode(kind: str, raw: bytes) -> Number | bytes | None:
    if not raw:
        return None
    match kind:
        case "float" if len(raw) == 8:
            number: float = struct.unpack(">d", raw)[0]
            return number
        case "int" if len(raw) == 8:
            return int.from_bytes(raw, "big", signed=True)
        case "bool":
            return raw[0] != 0
        case "bytes":
            return raw
    return None


class DerivedHolder:
    """The newest of one derived value; made by `Watch.hold`, kept up to date until `release`.

    The value is decoded when it is read, so a holder costs nothing while values come. While the variable is not known
    (its watch waits for the publisher to come back) `known` is False.
    """

    def __init__(self, watch: Watch, name: str, kind: str | None = None) -> None:
        self.name = name
        self.watch: Watch | None = watch
        self._kind = kind
        self._last: tuple[Any, int | None] = (None, None)
        sent = {pattern.name: pattern.type for pattern in watch.patterns}
        if watch.active and name not in sent:
            choice = f"it sends {', '.join(sent)}" if sent else "it sends none"
            raise ValueError(f"{watch.publisher}/{watch.variable} has no derived value {name!r}: {choice}")
        if kind is not None and sent.get(name, kind) != kind:
            raise ValueError(
                f"derived value {name!r} of {watch.publisher}/{watch.variable} is {sent[name]}, not {kind}"
            )

    @property
    def known(self) -> bool:
        """True if the publisher sends it, in the type that was asked for."""
        if self.watch is None:
            return False
        return any(each.name == self.name and self._kind in (None, each.type) for each in self.watch.patterns)

    @property
    def value(self) -> Any:
        """The newest value, or None; after `release` the last one it had."""
        self._refresh()
        return self._last[0]

    @property
    def created(self) -> int | None:
        """When the value it was derived from was created."""
        self._refresh()
        return self._last[1]

    def release(self) -> None:
        """Follow the watch no more."""
        self._refresh()
        self.watch = None

    def _refresh(self) -> None:
        if self.watch is not None and self.known:
            event = self.watch.newest
            if event is not None:
                self._last = event.derived.get(self.name), event.created
