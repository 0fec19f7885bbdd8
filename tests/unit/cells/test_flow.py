"""The two ends of a flow, step by step."""

from __future__ import annotations

import itertools

import pytest

from chappe.cells._arrivals import LARGE_BYTES, Incoming, ReceiveFlow, answer
from chappe.cells._flow import NEVER, SendFlow
from chappe.cells._outgoing import Outgoing
from chappe.errors import LinkError, ProtocolError, RefusedError, UnreachableError
from chappe.wire.parcels import AckFlag, Acknowledgement, CellParcel, ParcelFlag
from tests.support.flows import MS, Pipe, numbers, parcel_of

F, L = ParcelFlag.FIRST, ParcelFlag.LAST
BEGINNING = 262_144
SECOND = 1_000 * MS


def flow(parcel_bytes: int = 1000, **options: int) -> SendFlow:
    sender = SendFlow("fr.paris", "fr.lyon", numbers(), parcel_bytes=parcel_bytes, **options)
    sender.grant(1 << 40)
    return sender


def parcels(flow: SendFlow, now_ns: int = MS, limit: int = 1 << 30) -> list[CellParcel]:
    return [parcel_of(frame) for frame in flow.take(now_ns, limit)]


def acknowledge(flow: SendFlow, expected: int, now_ns: int, *, room: int = 1 << 30, **fields: object) -> None:
    flow.acknowledge(Acknowledgement(expected, room, **fields).encode(), now_ns)  # type: ignore[arg-type]


def said(receiver: ReceiveFlow, now_ns: int) -> Acknowledgement | None:
    frame = receiver.acknowledgement(now_ns)
    return None if frame is None else Acknowledgement.decode(parcel_of(frame).body)


def large(receiver: ReceiveFlow) -> Incoming:
    """The beginning of a large message."""
    for sequence in range(40):
        assert receiver.receive(sequence, 0 if sequence else F, bytes(30_000), MS)
        said(receiver, 10 * MS)
    ((message,), _) = receiver.take_messages()
    return message


# --- out


def test_a_message_is_cut_into_parcels_of_which_the_first_and_the_last_are_marked() -> None:
    sender = flow()
    for size in (2500, 0, 1000):
        sender.send(Outgoing(bytes(size)))
    sent = parcels(sender)
    assert [(each.sequence, each.flags, len(each.body)) for each in sent] == [
        (0, F, 1000), (1, 0, 1000), (2, L, 500), (3, F | L, 0), (4, F | L, 1000)
    ]  # fmt: skip
    assert {(each.flow, each.source, each.destination) for each in sent} == {(sender.id, "fr.paris", "fr.lyon")}
    assert {(each.hops, each.position, each.hops_left) for each in sent} == {((), 0, 64)}


def test_a_stream_is_sent_as_it_is_added_and_ends_with_its_last_piece() -> None:
    sender = flow()
    message = Outgoing()
    sender.send(message)
    assert parcels(sender) == []
    message.add(bytes(1500))
    assert [each.flags for each in parcels(sender)] == [F, 0]
    message.add(b"", last=True)
    assert [(each.flags, each.body) for each in parcels(sender)] == [(L, b"")]
    with pytest.raises(ValueError, match="complete"):
        message.add(b"more")


@pytest.mark.spec("BF-41")
def test_it_sends_no_further_than_there_is_room() -> None:
    sender = flow()
    sender.send(Outgoing(bytes(1 << 20)))
    first = len(parcels(sender))
    assert first == BEGINNING // 1064
    acknowledge(sender, first, 20 * MS, room=BEGINNING + 10 * 1064, newest=first - 1)
    assert len(parcels(sender, 20 * MS)) == 10
    assert sender.sent_to <= sender.reach == BEGINNING + 10 * 1064
    acknowledge(sender, first, 21 * MS, room=BEGINNING)  # an old one that was late
    assert sender.reach == BEGINNING + 10 * 1064


@pytest.mark.spec("BF-41")
def test_it_sends_no_more_than_the_node_gives_credit_for_and_that_is_anew_with_each_connection() -> None:
    sender = SendFlow("a", "b", numbers(), parcel_bytes=1000)
    sender.send(Outgoing(bytes(4 << 20)))
    acknowledge(sender, 0, MS, room=1 << 30)
    frames = sender.take(MS, 1 << 30)
    assert sum(map(len, frames)) <= BEGINNING < sum(map(len, frames)) + 1100
    sender.grant(500_000)
    assert sum(map(len, frames + sender.take(MS, 1 << 30))) <= 500_000
    sender.pause()
    assert parcels(sender, 2 * MS) == []
    sender.resume(3 * MS)
    again = parcels(sender, 3 * MS)
    assert again[0].sequence == 0  # the oldest that is not confirmed
    assert again[1].sequence > len(frames)
    assert sum(4 + 22 + len(each.body) for each in again) <= BEGINNING


def test_no_more_parcels_are_under_way_than_a_window_has() -> None:
    sender = SendFlow("a", "b", numbers(), parcel_bytes=1)
    sender.grant(1 << 40)
    sender.send(Outgoing(bytes(100_000)))
    acknowledge(sender, 0, MS, room=1 << 40)
    assert len(parcels(sender)) == 65_536


@pytest.mark.spec("BF-27")
def test_a_parcel_is_sent_again_when_later_ones_have_arrived_and_it_is_older_than_parcels_take() -> None:
    sender = flow()
    sender.send(Outgoing(bytes(10_000)))
    assert len(parcels(sender, MS)) == 10
    for newest in (0, 2):
        acknowledge(sender, 1, 31 * MS, newest=newest, ranges=((2, 10),) if newest else ())
    assert parcels(sender, 31 * MS) == []  # it may come by a longer path
    sender.send(Outgoing(bytes(10)))
    assert [each.sequence for each in parcels(sender, 80 * MS)] == [10]
    acknowledge(sender, 1, 115 * MS, newest=10, ranges=((2, 11),))
    assert [each.sequence for each in parcels(sender, 115 * MS)] == [1]
    assert sender.resent == 1
    acknowledge(sender, 11, 150 * MS, newest=1)
    assert len(sender.take_finished()) == 2
    assert sender.idle


def test_the_oldest_is_sent_again_when_nothing_comes_back_and_later_each_time() -> None:
    sender = flow()
    sender.send(Outgoing(bytes(3_000)))
    parcels(sender, MS)
    times = []
    for now_ms in range(0, 4_000, 10):
        sender.tick(now_ms * MS)
        if parcels(sender, now_ms * MS):
            times.append(now_ms)
    assert times == pytest.approx([500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500], abs=80)  # nobody has answered
    acknowledge(sender, 1, 4_000 * MS)
    times = []
    for now_ms in range(4_000, 20_000, 10):
        sender.tick(now_ms * MS)
        if parcels(sender, now_ms * MS):
            times.append(now_ms)
    assert times[:2] == pytest.approx([4_000, 5_000], abs=50)  # one that was sent later has arrived; then nothing
    assert [late - soon for soon, late in itertools.pairwise(times)][:3] == pytest.approx([1_000, 2_000, 4_000], abs=50)


@pytest.mark.spec("BF-27")
def test_who_never_answers_cannot_be_reached_after_five_seconds() -> None:
    sender = flow()
    messages = [Outgoing(b"1"), Outgoing(bytes(1 << 20))]
    for each in messages:
        sender.send(each)
    parcels(sender, MS)
    sender.tick(4_900 * MS)
    assert sender.failure is None
    sender.tick(5_001 * MS)
    assert isinstance(sender.failure, UnreachableError)
    assert sender.take_finished() == messages
    assert messages[1].failure is sender.failure
    with pytest.raises(UnreachableError, match="lyon"):
        sender.send(Outgoing(b"2"))
    assert sender.next_tick(6 * SECOND) == NEVER


def test_who_has_answered_before_is_waited_for_longer() -> None:
    sender = flow()
    sender.send(Outgoing(bytes(2000)))
    parcels(sender, MS)
    acknowledge(sender, 1, 20 * MS, newest=0)
    for now_ms in range(20, 30_000, 100):
        sender.tick(now_ms * MS)
        parcels(sender, now_ms * MS)
    assert sender.failure is None
    sender.tick(30_100 * MS)
    assert isinstance(sender.failure, UnreachableError)


@pytest.mark.parametrize(("flag", "error"), [(AckFlag.REFUSED, RefusedError), (AckFlag.UNREACHABLE, UnreachableError)])
def test_a_refusal_ends_the_flow_with_its_reason(flag: AckFlag, error: type[Exception]) -> None:
    sender = flow()
    message = Outgoing(bytes(5000))
    sender.send(message)
    parcels(sender)
    acknowledge(sender, 0, 2 * MS, flags=flag, text="closed on Sundays")
    assert isinstance(message.failure, error)
    assert "closed on Sundays" in str(message.failure)
    assert parcels(sender, 3 * MS) == []


@pytest.mark.spec("BF-27")
def test_a_receiver_that_does_not_know_the_flow_gets_what_is_not_confirmed_whole_in_another_one() -> None:
    sender = flow()
    messages = [Outgoing(bytes([number]) * 2500) for number in range(3)]
    for each in messages:
        sender.send(each)
    before = sender.id
    parcels(sender)
    acknowledge(sender, 4, 20 * MS, newest=3)
    assert sender.take_finished() == messages[:1]
    acknowledge(sender, 0, 30 * MS, flags=AckFlag.RESET)
    again = parcels(sender, 31 * MS)
    assert sender.id != before
    assert {each.flow for each in again} == {sender.id}
    assert [(each.sequence, each.flags, each.body[:1]) for each in again] == [
        (0, F, b"\1"), (1, 0, b"\1"), (2, L, b"\1"), (3, F, b"\2"), (4, 0, b"\2"), (5, L, b"\2")
    ]  # fmt: skip
    acknowledge(sender, 6, 50 * MS, newest=5)
    assert sender.take_finished() == messages[1:]


def test_a_message_of_which_all_that_was_sent_is_confirmed_begins_anew_as_well() -> None:
    sender = flow()
    message = Outgoing(bytes(BEGINNING))
    sender.send(message)
    first = parcels(sender)
    acknowledge(sender, len(first), 20 * MS, room=BEGINNING, newest=len(first) - 1)
    assert sender.unconfirmed == 0
    acknowledge(sender, 0, 30 * MS, flags=AckFlag.RESET)
    assert message.confirmed == 0
    again = parcels(sender, 31 * MS)
    assert (again[0].sequence, again[0].flags) == (0, F)


def test_a_stream_says_that_it_has_to_be_added_again() -> None:
    sender = flow()
    stream = Outgoing()
    sender.send(stream)
    stream.add(bytes(3000))
    parcels(sender)
    acknowledge(sender, 0, 30 * MS, flags=AckFlag.RESET)
    assert sender.take_finished() == [stream]
    assert stream.restarted
    assert parcels(sender, 31 * MS) == []
    stream.add(b"anew", last=True)
    assert [each.body for each in parcels(sender, 32 * MS)] == [b"anew"]


def test_who_forgets_every_flow_is_given_up() -> None:
    sender = flow()
    sender.send(Outgoing(b"x"))
    for at in range(1, 10):
        parcels(sender, at * MS)
        acknowledge(sender, 0, at * MS, flags=AckFlag.RESET)
    assert isinstance(sender.failure, RefusedError)


def test_a_message_that_is_given_up_arrives_whole_or_not_at_all() -> None:
    sender, receiver = flow(), ReceiveFlow(1, "fr.paris", "fr.lyon")
    part, unsent, after = Outgoing(bytes(400_000)), Outgoing(b"unsent"), Outgoing(b"after")
    for each in (part, unsent, after):
        sender.send(each)
    for each in parcels(sender, MS):
        receiver.receive(each.sequence, each.flags, each.body, MS)
    sender.cancel(part)
    sender.cancel(unsent)
    answered = receiver.acknowledgement(7 * MS)
    assert answered is not None
    sender.acknowledge(parcel_of(answered).body, 7 * MS)
    for each in parcels(sender, 8 * MS):
        receiver.receive(each.sequence, each.flags, each.body, 8 * MS)
    assert [b"".join(each.take()) for each in receiver.take_messages()[0]] == [b"after"]


def test_a_closed_window_is_asked_about_until_it_opens() -> None:
    pipe = Pipe(1, limit=BEGINNING, parcel_bytes=8000)
    for _ in range(20):
        pipe.sender.send(Outgoing(bytes(30_000)))
    pipe.run(lambda: pipe.sender.sequence > 0 and pipe.sender.unconfirmed == 0)
    before = pipe.parcels
    for _ in range(3_000):  # 15 s, in which nobody reads
        pipe.step()
    assert 3 <= pipe.parcels - before <= 20
    assert pipe.sender.failure is None
    for message in pipe.messages:
        message.take()
    lost, pipe.loss = pipe.loss, 1.0  # and the word that there is room is lost
    pipe.step()
    pipe.loss = lost
    pipe.messages.clear()
    pipe.run(lambda: len(pipe.finished) >= 12, steps=2_000)


def test_an_acknowledgement_of_what_was_not_sent_changes_nothing() -> None:
    sender = flow()
    sender.send(Outgoing(bytes(3000)))
    parcels(sender)
    with pytest.raises(ProtocolError, match="4 parcels are confirmed, 3 were sent"):
        acknowledge(sender, 4, 2 * MS)
    with pytest.raises(ProtocolError):
        acknowledge(sender, 0, 2 * MS, ranges=((2, 5),))
    assert sender.unconfirmed == 3 * 1064


# --- in


def test_it_acknowledges_a_message_at_once_and_pieces_together() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    receiver.receive(0, F | L, b"whole", 10 * MS)
    first = said(receiver, 10 * MS)
    assert first == Acknowledgement(1, 8 << 20, 0, 10 * MS)
    receiver.receive(1, F, bytes(1000), 20 * MS)
    assert said(receiver, 24 * MS) is None
    assert receiver.ack_at_ns == 25 * MS
    assert said(receiver, 25 * MS) == Acknowledgement(2, 8 << 20, 1, 20 * MS)
    for sequence in range(2, 70):
        receiver.receive(sequence, 0, bytes(1000), 30 * MS)
        if (now := said(receiver, 30 * MS)) is not None:
            break
    assert now is not None
    assert sequence == 2 + 65_536 // 1064


@pytest.mark.spec("BF-27")
def test_it_brings_parcels_in_order_and_names_the_ranges_that_it_has() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    for sequence in (4, 1, 5, 2, 4):
        receiver.receive(sequence, 0, bytes([sequence]), MS)
    assert receiver.take_messages() == ([], [])
    answered = said(receiver, 10 * MS)
    assert answered is not None
    assert (answered.expected, answered.ranges, answered.newest) == (0, ((1, 3), (4, 6)), 2)
    assert receiver.duplicates == 1
    receiver.receive(0, F, b"\0", 11 * MS)
    receiver.receive(3, 0, b"\3", 11 * MS)
    receiver.receive(6, L, b"\6", 11 * MS)
    (message,), _ = receiver.take_messages()
    assert b"".join(message.take()) == bytes(range(7))
    assert receiver.held == 0


def test_it_names_at_most_as_many_ranges_as_fit() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    for sequence in range(1, 200, 2):
        receiver.receive(sequence, 0, b"x", MS)
    frame = receiver.acknowledgement(10 * MS)
    assert frame is not None
    assert len(frame) < 1_400
    assert len(Acknowledgement.decode(parcel_of(frame).body).ranges) == 32


@pytest.mark.spec("BF-41")
def test_it_takes_no_more_than_the_room_that_it_gave_and_says_when_there_is_room_again() -> None:
    receiver = ReceiveFlow(1, "a", "b", limit=BEGINNING)
    asked: list[ReceiveFlow] = []
    receiver.on_room = asked.append
    sequence = 0
    while receiver.receive(sequence, F | L, bytes(10_000), MS):
        sequence += 1
    assert sequence == BEGINNING // 10_064
    assert receiver.overflows == 1
    full = said(receiver, 10 * MS)
    assert full is not None
    assert full.room == BEGINNING
    messages, _ = receiver.take_messages()
    for message in messages[:6]:
        message.take()
    assert asked == []
    messages[6].take()
    assert asked == [receiver]
    room = said(receiver, 11 * MS)
    assert room is not None
    assert room.room == BEGINNING + 7 * 10_064


def test_a_large_message_is_handed_over_before_its_end() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    message = large(receiver)
    assert message.size == 40 * 30_000 > LARGE_BYTES
    assert not message.complete
    assert len(message.take()) == 40
    receiver.receive(40, L, b"end", MS)
    assert receiver.take_messages() == ([], [message])
    assert message.take() == [b"end"]
    assert message.complete


def test_the_reader_of_a_large_message_hears_that_its_rest_does_not_come() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    message = large(receiver)
    called: list[Incoming] = []
    message.notify = lambda: called.append(message)
    receiver.receive(40, F, b"", MS)
    assert isinstance(message.failure, LinkError)
    assert called == [message]
    assert receiver.held == 0


def test_what_nobody_wants_makes_room_as_it_comes() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    message = large(receiver)
    message.skip()
    receiver.receive(40, 0, bytes(30_000), MS)
    assert receiver.held == 0


def test_a_parcel_that_belongs_to_no_message_is_counted() -> None:
    receiver = ReceiveFlow(1, "a", "b")
    receiver.receive(0, L, b"of what?", MS)
    receiver.receive(1, F | L, b"whole", MS)
    assert receiver.invalid == 1
    assert [each.take() for each in receiver.take_messages()[0]] == [[b"whole"]]


def test_an_answer_without_a_flow_says_why() -> None:
    parcel = parcel_of(answer(7, "fr.lyon", "fr.paris", int(AckFlag.REFUSED), "nobody here"))
    assert (parcel.flow, parcel.source, parcel.destination) == (7, "fr.lyon", "fr.paris")
    assert ParcelFlag.ACK in parcel.flags
    assert Acknowledgement.decode(parcel.body) == Acknowledgement(0, 0, flags=AckFlag.REFUSED, text="nobody here")


def test_a_million_small_messages_take_no_memory_when_they_are_over() -> None:
    sender, receiver = SendFlow("a", "b", numbers()), ReceiveFlow(1, "a", "b")
    sender.grant(1 << 60)
    done = 0
    for at in range(2_000):
        for _ in range(500):
            sender.send(Outgoing(b"small"))
        for frame in sender.take(at * MS, 1 << 30):
            receiver.receive(int.from_bytes(frame[20:24], "big"), frame[5], frame[-5:], at * MS)
        for message in receiver.take_messages()[0]:
            message.take()
        frame = receiver.acknowledgement((at + 6) * MS)
        assert frame is not None
        sender.acknowledge(parcel_of(frame).body, at * MS)
        done += len(sender.take_finished())
    assert done == 1_000_000
    assert sender.idle
    assert receiver.idle
    assert sender.sequence == 1_000_000
