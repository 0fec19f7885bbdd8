"""Names of variables along a tree of brokers: who hears what, when it is said again, and what bounds it."""

from __future__ import annotations

import pytest

from chappe.errors import ProtocolError
from chappe.machine import NEVER, Send
from chappe.status.names import COMPARED, MOST, NameSearch
from chappe.status.outbox import Outbox
from chappe.wire import control
from chappe.wire.base import Message
from chappe.wire.management import MAX_NAMES, Child, Lead, Names, Search
from tests.support.clouds import Cloud
from tests.support.forest import Forest
from tests.support.tree import THREE_LEVELS, TWO_CLOUDS, Played, messages

PARENT = "parent"


class One:
    """The search of one broker by hand."""

    def __init__(self, *names: str) -> None:
        self.out = Outbox()
        self.own: dict[tuple[str, str], object] = dict.fromkeys(tuple(name.split("/", 1)) for name in names)  # type: ignore[misc]
        self.search = NameSearch(self.out, self.own)
        self.now_ns = 0

    def sent(self) -> list[tuple[str, Message]]:
        self.search.flush()
        return [(str(send.to), send.message) for send in self.out.take() if isinstance(send, Send)]

    def begin(self, link: str, *patterns: str) -> list[tuple[str, Message]]:
        self.search.search(link, Search(begin=patterns))
        return self.sent()

    def end(self, link: str, *patterns: str) -> list[tuple[str, Message]]:
        self.search.search(link, Search(end=patterns))
        return self.sent()

    def wait(self) -> list[tuple[str, Message]]:
        """Until nothing is to be done."""
        while (next_ns := self.search.next_tick()) != NEVER:
            self.now_ns = max(self.now_ns + 1, next_ns)
            self.search.tick(self.now_ns)
        return self.sent()


def names(sent: list[tuple[str, Message]], to: str) -> list[str]:
    found = [message for link, message in sent if link == to and isinstance(message, Names)]
    return sorted("/".join(name) for message in found for name in message.variables)


# --- a cloud and a tree


def test_a_router_is_named_what_there_is_and_what_comes() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "scada/volts")
    cloud.publish("b", "other/volts")
    cloud.router("c").search("scada/#")
    cloud.plane.advance(1)
    assert cloud.router("c").names == ["scada/volts"]
    cloud.publish("b", "scada/hall/amperes")
    cloud.plane.advance(1)
    assert cloud.router("c").names == ["scada/volts", "scada/hall/amperes"]
    cloud.router("c").search_no_more("scada/#")
    cloud.publish("b", "scada/watts")
    cloud.plane.advance(1)
    assert len(cloud.router("c").names) == 2


def test_a_variable_that_is_published_again_is_named_again() -> None:
    cloud = Cloud("a-b")
    number = cloud.publish("a", "scada/volts").variable_id  # type: ignore[attr-defined]
    cloud.router("b").search("scada/+")
    cloud.plane.advance(1)
    cloud.unpublish("a", number)
    cloud.publish("a", "scada/volts")
    cloud.plane.advance(1)
    assert cloud.router("b").names == ["scada/volts"] * 2


def test_another_process_that_leads_hears_of_every_search() -> None:
    cloud = Cloud("a-b")
    cloud.router("b").search("scada/#")
    cloud.plane.settle()
    cloud.restart()
    cloud.publish("a", "scada/volts")
    cloud.plane.advance(1)
    assert cloud.router("b").names == ["scada/volts"]


@pytest.mark.parametrize(("topology", "searcher", "publishers"), [
    (TWO_CLOUDS, "s1", ["n1", "s1"]), (THREE_LEVELS, "b1", ["a1", "b1", "d1"]),
])  # fmt: skip
def test_names_of_all_clouds_come_to_whoever_searches(topology: object, searcher: str, publishers: list[str]) -> None:
    forest = Forest(topology)  # type: ignore[arg-type]
    for edge in publishers:
        forest.publish(edge, f"p{edge}/there")
    forest.router(searcher).search("+/there", "+/later")
    forest.plane.advance(1)
    assert sorted(forest.router(searcher).names) == [f"p{edge}/there" for edge in publishers]
    for edge in publishers:
        forest.publish(edge, f"p{edge}/later")
    forest.plane.advance(1)
    assert sorted(forest.router(searcher).names)[::2] == [f"p{edge}/later" for edge in publishers]
    for edge in publishers:
        if edge != searcher:
            assert forest.router(edge).names == []


def test_a_root_that_restarts_is_asked_again() -> None:
    forest = Forest(THREE_LEVELS)
    forest.router("b1").search("p/#")
    forest.plane.settle()
    forest.plane.kill("root")
    forest.plane.advance(1)
    forest.plane.start("root")
    forest.plane.advance(5)
    forest.publish("d1", "p/v")
    forest.plane.advance(1)
    assert forest.router("b1").names == ["p/v"]


def test_a_parent_or_child_of_an_earlier_release_is_sent_nothing() -> None:
    root = Played("root", TWO_CLOUDS)
    root.join("north", "south")  # neither says that it knows such searches
    assert messages(root.say("child/north", Search(begin=("p/#",))), Search) == []
    root.say("child/south", Child(id=3, role="south", epoch=2, mode=0, issuer=b"south.2", finds=True))
    sends = root.say("child/north", Search(begin=("p/#",)))
    assert messages(sends, Search) == [("child/south", Search(begin=("p/#",)))]


# --- one broker


def test_each_link_is_asked_for_what_the_others_search_for() -> None:
    one = One()
    for child in ("child/a", "child/b"):
        one.search.up(child, True)
    one.search.up(PARENT, True)
    sent = one.begin("child/a", "p/#")
    assert sent == [("child/b", Search(begin=("p/#",))), (PARENT, Search(begin=("p/#",)))]
    sent = one.begin("child/b", "p/#")
    assert sent == [("child/a", Search(begin=("p/#",))), (PARENT, Search(begin=("p/#",)))]
    found = Names(pattern="p/#", variables=(("p", "v"),))
    one.search.named(PARENT, found)
    assert one.sent() == [("child/a", found), ("child/b", found)]
    one.search.named("child/a", found)
    assert one.sent() == [("child/b", found)]
    assert one.end("child/a", "p/#") == [("child/b", Search(end=("p/#",)))]
    one.search.lost("child/b")
    assert one.sent() == [("child/a", Search(end=("p/#",))), (PARENT, Search(end=("p/#",)))]
    one.search.named(PARENT, found)
    assert one.sent() == []


def test_too_many_patterns_are_searched_for_as_everything_and_names_go_to_everybody() -> None:
    one = One()
    one.search.up(PARENT, True)
    one.search.search("router/a", Search(begin=tuple(f"p{at}/#" for at in range(MOST))))
    assert len(one.sent()) == 3
    assert one.begin("router/b", "q/#")[-1] == (PARENT, Search(begin=("#",)))
    assert one.begin("router/b", "q/#") == [(PARENT, Search(begin=("#",)))]  # everything is named again
    found = Names(pattern="#", variables=(("p1", "v"),))
    one.search.named(PARENT, found)
    assert one.sent() == [("router/a", found), ("router/b", found)]
    one.search.search("router/a", Search(begin=("one/too/many",)))
    assert "one/too/many" not in one.search._askers


def test_what_is_no_pattern_is_passed_over() -> None:
    one = One("p/v")
    assert one.begin("router/a", "a/#/b", "int:x", "p/#") == []
    assert names(one.wait(), "router/a") == ["p/v"]


def test_what_nobody_asked_for_is_not_passed_on() -> None:
    one = One()
    one.begin("router/a", "#")
    one.search.named(PARENT, Names(pattern="#", variables=(("p", "v"),)))
    assert one.sent() == []


def test_a_hundred_thousand_names_go_out_in_slices_and_bounded_messages() -> None:
    one = One(*(f"p/{at}" for at in range(100_000)))
    one.begin("router/a", "p/#")
    one.begin("router/b", "p/+")
    slices = []
    while one.search.next_tick() == 0:
        one.search.tick(0)
        slices.append(one.sent())
    assert max(len(names(sent, "router/a")) for sent in slices) <= COMPARED // 2
    assert len({name for sent in slices for name in names(sent, "router/b")}) == 100_000
    found = [message for sent in slices for _, message in sent if isinstance(message, Names)]
    assert max(len(message.variables) for message in found) == MAX_NAMES


def test_those_who_search_at_once_cost_one_look_at_all_names() -> None:
    one = One("p/v")
    one.begin("router/a", "p/#")
    one.search.tick(1)
    one.search.tick(2)
    assert names(one.sent(), "router/a") == ["p/v"]
    for at in range(100):
        one.begin(f"router/{at}", "p/#")
    one.search.tick(3)
    assert one.sent() == []  # it rests
    sent = one.wait()
    assert len(sent) == 100
    assert len({id(message) for _, message in sent}) == 1


def test_what_is_searched_for_by_name_is_looked_up() -> None:
    one = One(*(f"p/{at}" for at in range(10 * COMPARED)), "q/a/b")
    one.begin("router/a", "q/a/b", "p/5", "p/none")
    one.search.tick(1)
    assert names(one.sent(), "router/a") == ["p/5", "q/a/b"]
    one.search.lost("router/a")
    assert one.wait() == []


def test_what_is_withdrawn_before_its_turn_is_not_named() -> None:
    one = One()
    one.begin("router/a", "p/#")
    for name in (("p", "v"), ("p", "w"), ("p/x", "y")):
        one.own[name] = None
        one.search.published(name)
    del one.own["p", "v"]
    assert names(one.wait(), "router/a") == ["p/w"]


@pytest.mark.parametrize("message", [
    Search(begin=("a",) * (MAX_NAMES + 1)), Search(end=("a" * 1025,)),
    Names(pattern="#", variables=(("a", "b"),) * (MAX_NAMES + 1)),
])  # fmt: skip
def test_messages_are_bounded(message: Message) -> None:
    with pytest.raises(ProtocolError):
        control.decode(control.encode(message))


def test_brokers_say_that_they_know_such_searches() -> None:
    forest = Forest(TWO_CLOUDS)
    said = [message for _, _, message in forest.plane.trace if isinstance(message, Lead | Child)]
    assert said
    assert all(message.finds for message in said)
