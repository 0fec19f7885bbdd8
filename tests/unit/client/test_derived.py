"""Derived values: computed at the publisher, carried in option blocks, held by the subscriber."""

from __future__ import annotations

import struct

import numpy
import pytest

from chappe.client._core import ClientCore
from chappe.client._status import Watch
from chappe.client._variables import Variable, VariableGroup
from chappe.client.derived import (
    Custom,
    Derived,
    Maximum,
    Mean,
    Minimum,
    RateOfChange,
    decode_blocks,
    encode_blocks,
    patterns_of,
)
from chappe.client.published import Publication
from chappe.wire.frames import Frame, encode_frame
from chappe.wire.status import decode_status
from tests.support.clientpeer import Peer

S = 1_000_000_000


def publisher(core: ClientCore, derived: list[Derived], kind: str = "float", options: int = 0) -> Variable:
    variable = Variable(core, "p", "v", kind, (1, S), 3, options, derived=derived)
    variable.granted(9)
    return variable


def sent(peer: Peer) -> list[Frame]:
    start = len(peer.frames)
    peer.read()
    return peer.frames[start:]


@pytest.mark.spec("GS-036")
def test_each_value_carries_what_was_derived_from_it_and_those_before() -> None:
    core = ClientCore()
    peer = Peer(core)
    many: list[Derived] = [
        Mean(3),
        Minimum(3),
        Maximum(3),
        RateOfChange(),
        Custom("sign", lambda v, _: v > 0, type="bool"),
    ]
    variable = publisher(core, many)
    seen = []
    for second, value in enumerate([4.0, -2.0, 1.0, 7.0]):
        assert variable.publish(value, created=second * S)
        for frame in sent(peer):
            for record in decode_status(frame.payload):
                assert len(record.blocks) == 24 * 5
                seen.append((record.value_as("float"), decode_blocks(patterns_of(many), record.blocks)))
    names = ("mean(3)", "minimum(3)", "maximum(3)", "rate", "sign")
    assert [(value, tuple(found[name] for name in names)) for value, found in seen] == [
        (4.0, (4.0, 4.0, 4.0, None, True)),
        (-2.0, (1.0, -2.0, 4.0, -6.0, False)),
        (1.0, (1.0, -2.0, 4.0, 3.0, True)),
        (7.0, (2.0, -2.0, 7.0, 6.0, True)),
    ]


@pytest.mark.spec("GS-036")
def test_a_block_has_the_layout_of_the_contract() -> None:
    blocks = encode_blocks([Custom("n", lambda value, _: value * 2, type="int"), Mean(1)], 21, 0)
    assert blocks[:24] == struct.pack(">IHHq8x", 1, 1, 8, 42)
    assert blocks[24:] == struct.pack(">IHHd8x", 2, 0, 8, 21.0)


def test_values_longer_than_eight_bytes_stay_apart_from_what_is_derived() -> None:
    core = ClientCore()
    peer = Peer(core)
    length: list[Derived] = [Custom("length", lambda value, _: len(value), type="int")]
    variable = publisher(core, length, "bytes", options=1)
    variable.publish(b"a long value of 24 bytes", created=1)
    watch = Watch("p", "v")
    watch.admit(9, "bytes", 1, S, 1, patterns_of(length))
    core.watches.add([watch])
    for frame in sent(peer):
        core.feed(encode_frame(frame.kind, frame.payload))
    assert watch.value == b"a long value of 24 bytes" + bytes(8)
    assert watch.derived == {"length": 24}


@pytest.mark.spec("GS-046")
def test_holders_come_and_go_at_run_time() -> None:
    core = ClientCore()
    peer = Peer(core)
    many: list[Derived] = [Mean(2), RateOfChange()]
    variable = publisher(core, many)
    watch = Watch("p", "v")
    early = watch.hold("mean(2)", "float")
    assert (early.known, early.value) == (False, None), "it is not known yet what the publisher sends"
    watch.admit(9, "float", 1, S, 1, patterns_of(many))
    core.watches.add([watch])

    def publish(value: float, second: int) -> None:
        variable.publish(value, created=second * S)
        for frame in sent(peer):
            core.feed(encode_frame(frame.kind, frame.payload))

    publish(1.0, 1)
    publish(3.0, 2)
    assert (early.known, early.value, early.created) == (True, 2.0, 2 * S)
    late = watch.hold("rate")
    assert late.value == 2.0
    early.release()
    publish(5.0, 3)
    assert (early.value, early.created, early.known) == (2.0, 2 * S, False)
    assert late.value == 2.0
    assert [event.derived for event in watch.take_nowait()] == [
        {"mean(2)": 1.0, "rate": None},
        {"mean(2)": 2.0, "rate": 2.0},
        {"mean(2)": 4.0, "rate": 2.0},
    ]
    with pytest.raises(ValueError, match=r"no derived value 'median': it sends mean\(2\), rate"):
        watch.hold("median")
    with pytest.raises(ValueError, match="is float, not int"):
        watch.hold("rate", "int")


def test_a_plain_variable_has_no_derived_values() -> None:
    watch = Watch("p", "v")
    watch.admit(9, "float", 1, S, 1)
    assert watch.derived == {}
    with pytest.raises(ValueError, match="it sends none"):
        watch.hold("mean(2)")


def test_blocks_that_are_not_as_announced_are_left_out() -> None:
    patterns = patterns_of([Mean(2), RateOfChange()])
    wrong = struct.pack(">IHHq8x", 1, 1, 8, 5) + struct.pack(">IHH16x", 2, 0, 40)
    assert decode_blocks(patterns, wrong) == {}
    assert decode_blocks(patterns, b"") == {}


@pytest.mark.parametrize(
    ("derived", "reason"),
    [
        ([Mean(2), Mean(2)], "names of their own"),
        ([Custom("", lambda value, _: value)], "names of their own"),
    ],
)
def test_names_are_checked(derived: list[Derived], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        patterns_of(derived)


def test_wrong_derivations_are_refused() -> None:
    core = ClientCore()
    Peer(core)
    with pytest.raises(ValueError, match="one value or more"):
        Mean(0)
    with pytest.raises(ValueError, match="'text' of derived value"):
        Custom("a", lambda value, _: value, type="text")
    with pytest.raises(ValueError, match=r"mean\(3\) can be derived from numbers only"):
        Publication(type="bytes", derived=[Mean(3)])
    with pytest.raises(ValueError, match="'a' is not of type int"):
        publisher(core, [Custom("a", lambda value, _: 0.5, type="int")]).publish(1.0)
    with pytest.raises(ValueError, match="has 17 bytes, a block takes 16"):
        publisher(core, [Custom("a", lambda value, _: bytes(17), type="bytes")]).publish(1.0)
    with pytest.raises(ValueError, match="0 to 255 option blocks, not 256"):
        publisher(core, [Custom(f"c{number}", lambda value, _: value) for number in range(256)])
    assert core.counters()["status_published"] == 0
    with pytest.raises(TypeError, match="not in a group"):
        VariableGroup([publisher(core, [Mean(2)])])


@pytest.mark.spec("GS-033")
def test_alerts_that_come_too_soon_are_refused_and_counted() -> None:
    core = ClientCore()
    Peer(core)
    core.live_clock = False
    alert = Variable(core, "p", "alarm", "bool", (0, 1), 0, minimum_ns=S)
    alert.granted(9)
    outcomes = []
    for at in (0, S // 2, S - 1, S, S + 1, 2 * S, 10 * S):
        core.clock(at, at + 5)
        outcomes.append(alert.publish(True, created=at * 7))
    assert outcomes == [True, False, False, True, False, True, True]
    assert (alert.early, core.counters()["status_published"]) == (3, 4)


@pytest.mark.spec("GS-032")
def test_publications_that_contradict_themselves_are_refused() -> None:
    for options, reason in (
        ({"rate": 30, "minimum": 1}, "minimum is for alerts"),
        ({"rate": 30, "slowest": 0.01}, "not below 1/rate"),
        ({"rate": -1}, "a rate is positive"),
        ({"type": "bytes", "length": 3, "options": 2}, "not both"),
        ({"type": "text"}, "'text' of p/v"),
    ):
        with pytest.raises(ValueError, match=reason):
            Publication(**options).variable(ClientCore(), "p", "v")
    variable = Publication(rate=30, slowest=0.5).variable(ClientCore(), "p", "v")
    assert (variable.rate, variable.slowest_ns) == ((3, 100_000_000), S // 2)


def test_a_series_of_a_variable_with_derived_values_goes_the_long_way() -> None:
    core = ClientCore()
    peer = Peer(core)
    variable = publisher(core, [Mean(2)])
    assert variable.publish_array(numpy.array([1.0, 3.0]), numpy.array([1, 2])) == 2
    blocks = [record.blocks for frame in sent(peer) for record in decode_status(frame.payload)]
    assert [decode_blocks(patterns_of([Mean(2)]), each) for each in blocks] == [{"mean(2)": 1.0}, {"mean(2)": 2.0}]
