"""What a core writes: definitions, events until they are confirmed, values, probes."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.client._core import ClientCore
from chappe.client._variables import Variable, VariableGroup
from chappe.client.topics import Long
from chappe.links._socket import collect
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.payloads import Probe, Status
from chappe.wire.status import decode_value
from tests.support.clientpeer import Peer


def echo_of(probe: Probe) -> bytes:
    return encode_frame(Kind.ECHO, probe.encode())


def test_a_topic_is_defined_once_before_its_first_event() -> None:
    core = ClientCore()
    peer = Peer(core)
    assert core.publish("a/b", b"one")
    assert core.publish("a/b", b"two")
    assert core.publish(42, b"int")
    assert core.publish(Long(42), memoryview(b"long"))
    payloads = peer.read()
    definitions = [payload.topic for payload in payloads if isinstance(payload, Topic)]
    assert definitions == [TopicName("a/b"), TopicName(42, "i"), TopicName(42, "l")]
    assert [event.body for event in peer.events] == [b"one", b"two", b"int", b"long"]
    assert [event.sequence for event in peer.events] == [1, 2, 3, 4]
    assert {event.issuer for event in peer.events} == {0}


def test_the_extension_carries_what_was_given() -> None:
    core = ClientCore()
    peer = Peer(core)
    core.publish(
        "a", b"body", 1, created=5, expires=9, reply="r/1", correlation=7, content_type="text/plain",
        properties={"k": 1, "s": "x", "d": 1.5, "b": True, "x": b"raw"},
    )  # fmt: skip
    peer.read()
    assert peer.events == [
        Event(
            0, 1, b"body", priority=1, created=5, expires=9, reply=TopicName("r/1"), correlation=7,
            content_type="text/plain", properties={"k": 1, "s": "x", "d": 1.5, "b": True, "x": b"raw"},
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "body", "error"),
    [
        ("", b"", ValueError),
        ("a//b", b"", ValueError),
        ("a/+", b"", ValueError),
        ("x" * 1025, b"", ValueError),
        (1 << 31, b"", ValueError),
        (True, b"", TypeError),
        (1.0, b"", TypeError),
        (None, b"", TypeError),
        ("a", "text", TypeError),
        ("a", 5, TypeError),
    ],
)
def test_what_cannot_be_published_is_refused_and_changes_nothing(topic: object, body: object, error: type) -> None:
    core = ClientCore()
    peer = Peer(core)
    core.publish(1, b"fine")
    with pytest.raises(error):
        core.publish(topic, body)  # type: ignore[arg-type]
    peer.read()
    assert peer.received == [(1, b"fine")]


def test_a_body_above_the_limit_of_the_node_names_the_limit() -> None:
    core = ClientCore()
    peer = Peer(core, max_payload=100)
    assert core.publish("a", bytes(88))
    with pytest.raises(ValueError, match="the node takes 100"):
        core.publish("a", bytes(89))
    peer.read()
    assert [len(event.body) for event in peer.events] == [88]


def test_a_full_queue_refuses_until_the_node_has_confirmed() -> None:
    core = ClientCore(queue_bytes=1024)
    peer = Peer(core)
    accepted = 0
    while core.publish("a", bytes(100)):
        accepted += 1
    assert accepted == 1024 // 116
    assert core.counters()["refused_full"] == 1
    peer.read()
    assert not core.publish("a", bytes(100)), "written is not confirmed"
    peer.read(echo=True)
    core.flush()
    peer.read(echo=True)
    assert core.queued == 0
    assert core.publish("a", bytes(100))


def test_a_flush_is_done_when_the_echo_of_a_later_probe_has_come() -> None:
    core = ClientCore()
    peer = Peer(core)
    notified: list[int] = []
    core.on_progress = lambda: notified.append(core.flushed)
    core.publish("a", b"x")
    first = core.flush()
    (probe,) = [payload for payload in peer.read() if isinstance(payload, Probe)]
    core.publish("a", b"y")
    second = core.flush()
    (later,) = [payload for payload in peer.read() if isinstance(payload, Probe)]
    core.feed(echo_of(probe))
    assert core.flushed == first
    assert core.queued == 17
    core.feed(echo_of(later))
    assert core.flushed == second
    assert core.queued == 0
    assert notified == [first, second]


def test_much_unconfirmed_data_is_probed_without_a_flush() -> None:
    core = ClientCore()
    peer = Peer(core)
    for _ in range(70):
        core.publish("a", bytes(1000))
    peer.read(echo=True)
    assert core.queued == 0


def test_unconfirmed_events_are_sent_again_under_the_same_sequence_and_values_are_not() -> None:
    core = ClientCore()
    peer = Peer(core)
    variable = Variable(core, "p", "v")
    variable.granted(9)
    core.publish("old", b"confirmed")
    core.flush()
    peer.read(echo=True)
    core.publish("a", b"written")
    variable.publish(1.0)
    peer.read()
    core.publish("b", b"not written")
    variable.publish(2.0)
    core.close()
    assert core.publish("c", b"while down")
    again = Peer(core)
    payloads = again.read()
    assert again.received == [("a", b"written"), ("b", b"not written"), ("c", b"while down")]
    assert [event.sequence for event in again.events] == [2, 3, 4]
    assert [event.resent for event in again.events] == [True, False, False]
    assert not [payload for payload in payloads if isinstance(payload, Status)]
    assert sorted(again.topics) == [0, 1, 2], "only what is still needed is defined"
    assert core.counters()["resent"] == 1


def test_a_flush_survives_a_reconnection() -> None:
    core = ClientCore()
    Peer(core)
    core.publish("a", b"x")
    serial = core.flush()
    core.close()
    again = Peer(core)
    again.read(echo=True)
    assert core.flushed == serial
    assert again.received == [("a", b"x")]


def test_events_wait_for_credit_and_values_and_control_do_not() -> None:
    core = ClientCore()
    peer = Peer(core, credit=50)
    variable = Variable(core, "p", "v")
    variable.granted(9)
    for number in range(4):
        core.publish("a", b"%04d" % number)  # 20 bytes each with their headers
    variable.publish(1.0)
    core.send_control(control.encode(control.Goodbye()))
    payloads = peer.read()
    assert [body for _, body in peer.received] == [b"0000", b"0001"]
    assert [payload for payload in payloads if isinstance(payload, Status)]
    core.feed(encode_frame(Kind.CREDIT, (80).to_bytes(8, "big")))
    peer.read()
    assert [body for _, body in peer.received] == [b"0000", b"0001", b"0002", b"0003"]


def test_a_flush_without_credit_is_done_only_when_everything_was_sent() -> None:
    core = ClientCore()
    peer = Peer(core, credit=20)
    core.publish("a", b"0000")
    first = core.flush()
    core.publish("a", b"0001")
    second = core.flush()
    peer.read(echo=True)
    assert core.flushed == first
    core.feed(encode_frame(Kind.CREDIT, (40).to_bytes(8, "big")))
    peer.read(echo=True)
    assert core.flushed == second


def test_topic_numbers_stay_below_the_limit_and_are_used_again() -> None:
    core = ClientCore()
    peer = Peer(core, max_topics=4)
    for number in range(50):
        while not core.publish(f"t/{number}", b"%d" % number):
            peer.read(echo=True)
    core.flush()
    peer.read(echo=True)
    assert max(peer.topics) == 3
    assert [event.body for event in peer.events] == [b"%d" % number for number in range(50)]


def test_reused_numbers_name_the_topic_they_were_published_to() -> None:
    core = ClientCore()
    peer = Peer(core, max_topics=3)
    seen: list[tuple[object, bytes]] = []
    for number in range(30):
        while not core.publish(f"t/{number % 7}", b"%d" % (number % 7)):
            core.flush()
        core.flush()
        before = len(peer.events)
        peer.read(echo=True)
        seen += [(peer.topics[event.topic], event.body) for event in peer.events[before:]]
    assert seen == [(f"t/{number % 7}", b"%d" % (number % 7)) for number in range(30)]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(0, 5), st.integers(0, 3000)),
            st.tuples(st.just("value"), st.just(0), st.integers(0, 9)),
            st.tuples(st.just("write"), st.integers(1, 5000), st.just(0)),
            st.tuples(st.just("flush"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_frames_never_interleave_however_the_socket_cuts_them(steps: list[tuple[str, int, int]]) -> None:
    core = ClientCore()
    peer = Peer(core)
    variable = Variable(core, "p", "v")
    variable.granted(9)
    expected: list[tuple[object, bytes]] = []
    values = 0
    pieces = b""
    for what, first, second in steps:
        if what == "publish":
            expected.append((f"t/{first}", bytes(second)))
            assert core.publish(*expected[-1])  # type: ignore[arg-type]
        elif what == "value":
            values += variable.publish(float(second))
        elif what == "write":
            pieces += collect(core, 0, first)
        else:
            core.flush()
    payloads = [peer._understand(frame, False) for frame in peer._reader.feed(pieces)] + peer.read(limit=777)
    assert peer.received == expected
    assert sum(len(payload.records) for payload in payloads if isinstance(payload, Status)) == values


@pytest.mark.spec("GS-037")
def test_publishing_allocates_nothing_in_steady_state() -> None:
    core = ClientCore(queue_bytes=1 << 20)
    peer = Peer(core)
    variable = Variable(core, "p", "v")
    variable.granted(9)
    body = bytes(64)

    def rounds(count: int) -> None:
        for number in range(count):
            assert core.publish("a/b", body)
            assert variable.publish(1.5)
            if number % 1000 == 999:
                core.flush()
                peer.read(echo=True)
                peer.events.clear()
                peer.frames.clear()

    rounds(5_000)
    before = core.counters()["allocations"]
    rounds(100_000)
    assert core.counters()["allocations"] == before
    assert core.counters()["published"] == 105_000


@pytest.mark.spec("GS-020", "GS-023")
def test_values_of_every_type_carry_the_clock_of_the_middleware_or_of_the_application() -> None:
    core = ClientCore()
    peer = Peer(core)
    core.live_clock = False
    core.clock(0, 777)
    sent: dict[str, float | int | bool | bytes] = {"float": 2.5, "int": -(1 << 60), "bool": True, "bytes": b"12345678"}
    for number, (kind, value) in enumerate(sent.items(), 1):
        variable = Variable(core, "p", kind, kind)
        variable.granted(number)
        assert variable.publish(value)
        assert variable.publish(value, created=-5)
    (status,) = peer.read()
    assert isinstance(status, Status)
    got = [(record.variable, record.created) for record in status.records]
    assert got == [(number, created) for number in (1, 2, 3, 4) for created in (777, -5)]
    decoded = [decode_value(kind, status.records[2 * at].value) for at, kind in enumerate(sent)]  # type: ignore[arg-type]
    assert decoded == list(sent.values())


@pytest.mark.spec("GS-034")
def test_publishing_a_value_fails_while_there_is_no_connection() -> None:
    core = ClientCore()
    variable = Variable(core, "p", "v")
    assert variable.publish(1.0) is False
    Peer(core)
    assert variable.publish(1.0) is False, "not registered yet"
    variable.granted(9)
    assert variable.publish(1.0) is True
    core.close()
    assert variable.publish(1.0) is False
    assert core.counters()["refused_status"] == 3


def test_values_are_bounded_too() -> None:
    core = ClientCore(status_bytes=1024)
    peer = Peer(core)
    variable = Variable(core, "p", "v", "int")
    variable.granted(9)
    accepted = sum(variable.publish(number) for number in range(100))
    (status,) = peer.read()
    assert isinstance(status, Status)
    assert accepted == len(status.records) == 42
    assert variable.publish(0)


def test_arrays_become_one_record_a_value() -> None:
    core = ClientCore()
    peer = Peer(core)
    series = Variable(core, "p", "s", "int")
    series.granted(5)
    assert series.publish_array(numpy.arange(3), numpy.array([10, 20, 30])) == 3
    group = VariableGroup([Variable(core, "p", f"v{number}") for number in range(3)])
    for number, variable in enumerate(group.variables, 1):
        variable.granted(number)
    assert group.publish_array(numpy.array([0.5, 1.5, 2.5]), created=99) == 3
    with pytest.raises(ValueError, match="2 values do not fit 3"):
        group.publish_array(numpy.array([0.5, 1.5]))
    (status,) = peer.read()
    assert isinstance(status, Status)
    assert [(record.variable, record.created) for record in status.records] == [
        (5, 10), (5, 20), (5, 30), (1, 99), (2, 99), (3, 99),
    ]  # fmt: skip
    assert [decode_value("int", record.value) for record in status.records[:3]] == [0, 1, 2]
    assert [decode_value("float", record.value) for record in status.records[3:]] == [0.5, 1.5, 2.5]


def test_a_long_value_goes_into_option_blocks() -> None:
    core = ClientCore()
    peer = Peer(core)
    variable = Variable(core, "p", "v", "bytes", options=1)
    variable.granted(9)
    assert variable.publish(bytes(range(20)), created=1)
    with pytest.raises(ValueError, match="takes 32"):
        variable.publish(bytes(33))
    (status,) = peer.read()
    assert isinstance(status, Status)
    (record,) = status.records
    assert record.value + record.blocks == bytes(range(20)) + bytes(12)
