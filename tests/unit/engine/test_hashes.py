"""Names that were chosen to collide: the tables are keyed with a secret, so nobody can choose them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from chappe.engine._engine import Engine
from chappe.engine._topics import TopicTable
from tests.support.clientpeer import event, topic

COUNT = 250
BUCKETS = 512  # a table of 250 names has fewer
MASK = (1 << 64) - 1
K0, K1 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & MASK


def folded(seed: int, text: bytes) -> int:
    """What the tables used before, with a key that everybody knew."""
    h = seed ^ K0 ^ (len(text) * K1 & MASK)
    whole = len(text) // 8 * 8
    for at in range(0, whole, 8):
        h = fold(h ^ int.from_bytes(text[at : at + 8], "little"), K1)
    return fold(fold(h ^ int.from_bytes(text[whole:], "little"), K1) ^ seed, K0)


def siphash13(seed: int, text: bytes) -> int:
    """SipHash-1-3 under the key that a table makes of its seed."""
    k0, k1 = seed, fold(seed ^ K0, K1)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & MASK

    def turn() -> None:
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)

    whole = len(text) // 8 * 8
    words = [int.from_bytes(text[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(text[whole:], "little") | (len(text) & 255) << 56)
    for word in words:
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        turn()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def chosen(hashed: Callable[[int, bytes], int]) -> list[str]:
    """Names that an attacker who knows the key finds: all in one bucket of the topic index."""
    seed = ord("s") << 32  # of plain string topics, as the table mixes it in
    seed = seed * K0 & MASK
    buckets: defaultdict[int, list[str]] = defaultdict(list)
    for number in range(10**7):
        name = f"x{number}"
        bucket = buckets[hashed(seed, name.encode()) % BUCKETS]
        bucket.append(name)
        if len(bucket) == COUNT:
            return bucket
    raise AssertionError("no such names")


def steps(table: TopicTable, names: list[str]) -> int:
    before = table.steps()
    for name in names:
        table.number(name)
    return table.steps() - before


@pytest.mark.parametrize("hashed", [folded, siphash13])
def test_chosen_names_cost_no_more_than_others(hashed: Callable[[int, bytes], int]) -> None:
    names = chosen(hashed)
    assert steps(Engine().topics, names) < 20 * COUNT


def test_the_key_is_what_keeps_them_apart() -> None:
    """With a key that the attacker knows the same names do cost much: the names above are chosen well."""
    assert steps(TopicTable(seed=0), chosen(siphash13)) > 50 * COUNT
    assert steps(Engine(seed=0).topics, chosen(siphash13)) > 50 * COUNT


def test_engines_have_keys_of_their_own() -> None:
    names = chosen(siphash13)
    assert len({steps(Engine().topics, names) for _ in range(8)}) > 1


def test_a_key_changes_nothing_that_can_be_seen() -> None:
    outputs = []
    for seed in (0, 1, 2**63):
        engine = Engine(seed=seed)
        inward, outward = (engine.open_port(issuer=bytes(16)) for _ in range(2))
        engine.topics.subscribe(outward, "#")
        for number in range(50):
            engine.feed(inward, topic(number, f"t/{number}") + event(number, number + 1, b"x"))
        outputs.append(bytes(engine.peek(outward)))
    assert len(set(outputs)) == 1
