"""Flows over several cells in virtual time: shares, windows, paths that fail."""

from __future__ import annotations

from chappe.wire.parcels import AckFlag
from tests.support.parcelnet import MS, Net, Receiver, Sender, refusals

RATES = {"s1": 1e6, "s2": 2e6, "s4": 4e6}


def diamond() -> tuple[Net, Sender, Receiver]:
    """A client at o sends to one at d by three cells whose links have 1, 2 and 4 MB/s; the clocks differ."""
    net = Net("o", "d", *RATES)
    for name, bytes_s in RATES.items():
        net.join("o", name, bytes_s)
        net.join(name, "d", 50e6, 5 * MS)
    there, back = net.cells["o"], net.cells["d"]
    there.route(b"to", *((1.0, f"{name} d") for name in RATES))
    back.route(b"from", *((1.0, f"{name} o") for name in RATES))
    sender = Sender(there.engine, there.client(b"from"), "from", "to", 7)
    receiver = Receiver(back.engine, back.client(b"to"), 10**15)
    net.clients += [sender, receiver]
    return net, sender, receiver


def shares(net: Net, seconds: float) -> list[float]:
    """What was acknowledged by each path meanwhile, of all."""
    rows = net.cells["o"].engine.parcel_rows
    before = {row.hops: row.acked_bytes for row in rows()}
    net.run(seconds)
    acked = [row.acked_bytes - before[row.hops] for row in rows()]
    return [each / sum(acked) for each in acked]


def near(found: list[float], capacities: list[float], by: float = 0.02) -> bool:
    return all(abs(share - each / sum(capacities)) < by for share, each in zip(found, capacities, strict=True))


def test_shares_follow_the_capacities_of_paths_and_a_step_of_them() -> None:
    net, sender, receiver = diamond()
    net.run(10)
    assert near(shares(net, 10), [1, 2, 4])
    assert near([row.share for row in net.cells["o"].engine.parcel_rows()], [1, 2, 4])
    net.pipes["o", "s4"].bytes_s, net.pipes["o", "s1"].bytes_s = 1e6, 4e6
    net.run(25)
    assert near(shares(net, 5), [4, 2, 1])
    net.run(20)
    before = receiver.bytes
    net.run(10)
    assert receiver.bytes - before > 0.95 * 7e6 * 10
    for row in net.cells["o"].engine.parcel_rows():
        assert row.delay_ns < 100 * MS
    assert sender.again == receiver.repeats == 0


def test_windows_keep_queues_short_and_cells_in_the_middle_ask_nobody() -> None:
    net, _, _ = diamond()
    net.run(5)
    net.most_queued.clear()
    net.run(40)
    for name, bytes_s in RATES.items():
        assert net.most_queued["o", name] < 0.15 * bytes_s
        assert net.cells[name].asked == []
        assert net.cells[name].counts("parcel_questions") == (0,)
    assert net.cells["o"].asked == [b"to"]
    assert net.cells["d"].asked == [b"from"]


def test_a_path_that_swallows_parcels_is_left_within_seconds() -> None:
    net, sender, receiver = diamond()
    net.run(5)
    net.pipes["s4", "d"].swallows = True
    net.run(3)
    assert [hops[0][:2] for _, hops in net.cells["o"].engine.take_broken()] == [b"s4"]
    net.run(4)
    before = receiver.bytes
    net.run(3)
    assert receiver.bytes - before > 0.9 * 3e6 * 3
    assert receiver.expected > sender.expected - 2_000
    net.pipes["s4", "d"].swallows = False
    net.run(40)
    assert near(shares(net, 5), [1, 2, 4])  # it gets another chance


def test_parcels_return_from_a_broken_path_and_nothing_is_lost_or_repeated() -> None:
    net, sender, receiver = diamond()
    net.run(5)
    middle = net.cells["s4"]
    middle.engine.set_cell(b"d-------", -1)
    net.run(0.5)
    assert [hops[0][:2] for _, hops in net.cells["o"].engine.take_broken()] == [b"s4"]
    assert middle.counts("parcels_returned") > (0,)
    sender.most = sender.next
    net.run(5, lambda: not sender.outstanding)
    assert receiver.expected == sender.next
    assert not sender.outstanding


def test_a_receiver_that_is_silent_for_two_seconds_costs_no_path() -> None:
    net, sender, receiver = diamond()
    net.run(3)
    net.clients.remove(receiver)
    net.run(2)
    net.clients.append(receiver)
    net.run(3)
    assert net.cells["o"].engine.take_broken() == []
    assert refusals(sender) == []


def test_when_all_paths_are_silent_the_sender_hears_of_it() -> None:
    net, sender, _ = diamond()
    net.run(3)
    for name in RATES:
        net.pipes[name, "d"].swallows = True
    net.run(10)
    assert refusals(sender)[:1] == [AckFlag.UNREACHABLE]


def test_flows_to_one_destination_take_turns() -> None:
    net, sender, receiver = diamond()
    cell = net.cells["o"].engine
    other = Sender(cell, net.cells["o"].client(b"more"), "more", "to", 9)
    net.clients = [sender, other, receiver]  # which acknowledges to whom it heard last: both flows wait
    net.run(0.1)
    net.clients = [receiver]
    before = {row.flow: row.waiting_bytes for row in cell.flow_rows()}
    net.run(0.2)
    left = [before[row.flow] - row.waiting_bytes for row in cell.flow_rows()]
    assert min(left) > 0
    assert max(left) - min(left) <= 8_100
