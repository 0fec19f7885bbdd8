"""The topic table against an obvious model: any order of changes, numbers and sweeps, and the routes between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chappe.engine._memory import MemoryBudget
from chappe.engine._topics import TopicError, TopicTable, check_pattern, check_topic

LEVELS = st.sampled_from(["a", "b", "longer-than-eight"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map("/".join)
PATTERNS = st.builds(
    lambda levels, rest: "/".join(levels + rest),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
) | st.sampled_from(["#", "a/#", "a/+", "+/b", "a/b"])  # the last ones all cover a/b: overlaps must be common
TYPED = st.tuples(st.integers(-2, 2).map(str), st.sampled_from("il"))
ID = "0123456789abcdef" * 2
ADDRESSES = st.sampled_from(["a", "b/a", f"a@{ID}", f"b/a@{ID}", f"b/a@confirm:{ID}"])
ADDRESS_PATTERNS = st.tuples(ADDRESSES | st.sampled_from(["a@", "b@", "@"]), st.just("n"))
STRINGS = st.tuples(PATTERNS, st.just("s"))
ANY_PATTERN = STRINGS | STRINGS | TYPED | ADDRESS_PATTERNS
ANY_TOPIC = st.tuples(TOPICS, st.just("s")) | TYPED | st.tuples(ADDRESSES, st.just("n"))
PORTS = st.sampled_from([0, 1, 2**32 - 1])
GROUPS = st.sampled_from(["", "", "g", "h"])

Key = tuple[str, str]  # topic or pattern, kind


def covers(pattern: list[str], topic: list[str]) -> bool:
    if pattern[:1] == ["#"]:
        return True
    if not pattern or not topic:
        return not pattern and not topic
    return pattern[0] in ("+", topic[0]) and covers(pattern[1:], topic[1:])


def matches(pattern: Key, topic: Key) -> bool:
    if pattern[1] != topic[1]:
        return False
    return pattern == topic if pattern[1] != "s" else covers(pattern[0].split("/"), topic[0].split("/"))


@dataclass
class Model:
    """Every subscription in one dictionary, searched from end to end."""

    subs: dict[tuple[int, Key, str], bool] = field(default_factory=dict)

    def matches(self, pattern: Key, topic: Key) -> bool:
        if topic[1] != "n":
            return matches(pattern, topic)
        held = {key for _, key, _ in self.subs}
        name = topic[0].partition("@")[0].split("/")[-1]
        leading = [(text, "n") for text in (topic[0], f"{name}@", "@")]
        return pattern == next((key for key in leading if key in held), None)

    def ports(self, topic: Key, group: str, only_back: bool = False) -> list[int]:
        found = {
            port
            for (port, pattern, name), back in self.subs.items()
            if name == group and self.matches(pattern, topic) and (back or not only_back)
        }
        return sorted(found)

    def route(self, topic: Key) -> tuple[list[int], list[int], dict[str, tuple[list[int], list[int]]]]:
        names = {name for _, _, name in self.subs if name}
        groups = {name: (self.ports(topic, name), self.ports(topic, name, True)) for name in names}
        return self.ports(topic, ""), self.ports(topic, "", True), {n: g for n, g in groups.items() if g[0]}

    def nodes(self) -> int:
        prefixes = set()
        for _, (pattern, kind), _ in self.subs:
            levels = pattern.split("/") if kind == "s" else [pattern]
            prefixes |= {(kind, *levels[:depth]) for depth in range(1, len(levels) + 1)}
        return len(prefixes)


class TopicTableMachine(RuleBasedStateMachine):
    """Table and model get the same calls; after each, everything that can be asked is asked of both."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget()
        self.table = TopicTable(seed=99, budget=self.budget)
        self.model = Model()
        self.numbers: dict[Key, int] = {}
        self.holds: dict[int, int] = {}
        self.quarantined: set[int] = set()
        self.number(("a/b", "s"), True)

    @rule(port=PORTS, pattern=ANY_PATTERN, group=GROUPS, back=st.booleans())
    def subscribe(self, port: int, pattern: Key, group: str, back: bool) -> None:
        key = (port, pattern, group)
        changes = self.model.subs.get(key) is not back
        stamp = self.table.stamp
        assert self.table.subscribe(port, *pattern, group, back) is (key not in self.model.subs)
        assert (self.table.stamp != stamp) is changes
        self.model.subs[key] = back

    @rule(port=PORTS, pattern=ANY_PATTERN, group=GROUPS)
    def unsubscribe(self, port: int, pattern: Key, group: str) -> None:
        existed = self.model.subs.pop((port, pattern, group), None) is not None
        assert self.table.unsubscribe(port, *pattern, group) is existed

    @precondition(lambda self: self.model.subs)
    @rule(data=st.data())
    def unsubscribe_one_of_them(self, data: st.DataObject) -> None:
        port, pattern, group = key = data.draw(st.sampled_from(sorted(self.model.subs)))
        del self.model.subs[key]
        assert self.table.unsubscribe(port, *pattern, group) is True

    @rule(port=PORTS, limit=st.integers(0, 3))
    def remove_port(self, port: int, limit: int) -> None:
        had = {key for key in self.model.subs if key[0] == port}
        left = self.table.remove_port(port, limit)
        assert left == max(0, len(had) - limit)
        kept = {(port, (pattern, kind), group) for pattern, kind, group, _ in self.table.patterns(port)}
        assert kept <= had
        assert len(kept) == left
        for key in had - kept:
            del self.model.subs[key]

    @rule(topic=ANY_TOPIC, hold=st.booleans())
    def number(self, topic: Key, hold: bool) -> None:
        number = self.table.number(*topic)
        if topic in self.numbers:
            assert self.numbers[topic] == number
        else:
            assert number not in self.numbers.values()
            assert number not in self.quarantined
            self.numbers[topic] = number
        if hold:
            self.table.hold(number)
            self.holds[number] = self.holds.get(number, 0) + 1

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.holds)))
        self.table.release(number)
        self.holds[number] -= 1
        if not self.holds[number]:
            del self.holds[number]

    @rule()
    def sweep(self) -> None:
        gone = {topic: number for topic, number in self.numbers.items() if number not in self.holds}
        assert self.table.sweep() >= len(gone)
        for topic, number in gone.items():
            del self.numbers[topic]
            self.quarantined.add(number)
            kind, _, group = self.table.name(number)
            assert (kind, group) == (topic[1], "")

    @rule()
    def recycle(self) -> None:
        freed = self.table.recycle()
        assert len(set(freed)) == len(freed)
        assert self.quarantined <= set(freed)
        assert not set(freed) & set(self.numbers.values())
        self.quarantined.clear()

    @rule(topic=ANY_TOPIC)
    def match(self, topic: Key) -> None:
        ports, _, groups = self.model.route(topic)
        assert self.table.match(*topic) == (ports, {name: members for name, (members, _) in groups.items()})

    @rule()
    def resolve_all(self) -> None:
        """Not an invariant: routes must also be right when several changes come between two looks at them."""
        identities: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        taken = list(self.numbers.values())
        for topic, number in self.numbers.items():
            identity, ports, back, groups = self.table.route(number)
            assert (ports, back, {n: (m, b) for n, (_, m, b) in groups.items()}) == self.model.route(topic)
            if not groups:
                content = (tuple(ports), tuple(back))
                assert identities.setdefault(content, identity) == identity
            for name, (pair, _, _) in groups.items():
                taken.append(pair)
                assert self.table.name(pair) == (topic[1], self.table.name(number)[1], name)
        assert len(set(identities.values())) == len(identities)
        assert len(set(taken)) == len(taken), "a number stands for one thing"
        calls = self.budget.calls
        for number in self.numbers.values():
            self.table.route(number)
        assert self.budget.calls == calls

    @invariant()
    def counts_agree(self) -> None:
        assert self.table.subscriptions() == len(self.model.subs)
        assert self.table.nodes() == self.model.nodes()
        names = [name for _, _, name in self.model.subs if name]
        assert sorted(self.groups()) == sorted(names)

    @invariant()
    def ports_list_their_own(self) -> None:
        for port in {0, 1, 2**32 - 1}:
            listed = {(port, (p, kind), group): back for p, kind, group, back in self.table.patterns(port)}
            assert listed == {key: back for key, back in self.model.subs.items() if key[0] == port}
            assert self.table.subscriptions(port) == len(listed)

    def groups(self) -> list[str]:
        """Of each subscription to a queue group, its name."""
        ports = {port for port, _, _ in self.model.subs}
        return [group for port in ports for _, _, group, _ in self.table.patterns(port) if group]

    def teardown(self) -> None:
        self.resolve_all()
        for port in {port for port, _, _ in self.model.subs}:
            assert self.table.remove_port(port, 1000) == 0
        for number, holds in self.holds.items():
            for _ in range(holds):
                self.table.release(number)
        self.table.sweep()
        self.table.recycle()
        assert (self.table.count(), self.table.nodes(), self.groups()) == (0, 0, [])


TestTopicTable = TopicTableMachine.TestCase
TestTopicTable.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def allowed(text: str, wildcards: bool) -> bool:
    levels = text.split("/")
    plain = [level for level in levels if not (wildcards and level == "+")]
    if wildcards and plain and levels[-1] == "#":
        plain.pop()
    return (
        1 <= len(text.encode()) <= 1024
        and len(levels) <= 64
        and all(levels)
        and "\0" not in text
        and not any(sign in level for level in plain for sign in "+#")
    )


TEXTS = st.text(st.sampled_from("aä€😀/+#\0 "), max_size=12) | st.text(max_size=12)


def accepted(check: Callable[[], None]) -> bool:
    try:
        check()
    except TopicError:
        return False
    return True


@given(text=TEXTS.filter(lambda text: not any("\ud800" <= sign <= "\udfff" for sign in text)))
def test_checks_accept_exactly_what_the_rules_allow(text: str) -> None:
    assert accepted(lambda: check_topic(text.encode())) is allowed(text, wildcards=False)
    assert accepted(lambda: check_pattern(text)) is allowed(text, wildcards=True)


@given(st.binary(max_size=8))
def test_topics_are_utf8_exactly_when_python_decodes_them(noise: bytes) -> None:
    topic = noise.translate(None, b"/+#\0") or b"x"
    try:
        topic.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    assert accepted(lambda: check_topic(topic)) is valid
