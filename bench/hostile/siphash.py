"""SipHash-2-4 with 128 bits of output, slowly and obviously: the oracle of datagram tags."""

from __future__ import annotations

MASK = (1 << 64) - 1


def siphash128(key: bytes, message: bytes) -> bytes:
    """The 16-byte tag of a message under a 16-byte key, in the byte order of the reference implementation."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(message) // 8 * 8
    words = [int.from_bytes(message[place : place + 8], "little") for place in range(0, whole, 8)]
    words.append(int.from_bytes(message[whole:], "little") | (len(message) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _rounds(v, 4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, 4)
    high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[1] = _left(v[1], 13) ^ v[0]
        v[0] = _left(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = _left(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = _left(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = _left(v[1], 17) ^ v[2]
        v[2] = _left(v[2], 32)


def _left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK
