"""Access rules: default refusal, deny before allow, nothing slips past a subscription."""

import tomllib
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import ConfigError, DeniedError
from chappe.security import Identity, Rule, RuleBook, dev_identity
from chappe.security.config import Action, Role
from chappe.security.rules import ACTIONS, FREE_ACTIONS, right_to_send

PMU = Identity(name="pmu-1", role="client", how="certificate")
TOPICS = ["/".join(topic) for length in range(1, 4) for topic in product("abz", repeat=length)]

heads = st.lists(st.sampled_from(["a", "b", "+"]), min_size=0, max_size=2)
patterns = st.builds(lambda head, rest: "/".join([*head, "#"] if rest else head or ["b"]), heads, st.booleans())


def rules_in(text: str) -> list[Rule]:
    return msgspec.convert(tomllib.loads(text), dict[str, list[Rule]])["rule"]


def someone(role: Role, name: str = "someone") -> Identity:
    return Identity(name=name, role=role, how="certificate")


RULED = [action for action in ACTIONS if action not in FREE_ACTIONS]


@pytest.mark.parametrize("action", RULED)
def test_without_a_rule_a_client_may_do_nothing(action: Action) -> None:
    assert not RuleBook.of([]).allows(PMU, action, "a/b")


def test_an_inbox_needs_no_rule_and_can_be_denied() -> None:
    token = Identity(name="pmu-1", role="client", how="token", grants=(Rule("publish", "a"),))
    assert RuleBook.of([]).allows(token, "inbox", "east/n7")
    book = RuleBook.of([Rule("inbox", "east/#", names=("pmu-*",), deny=True)])
    assert not book.allows(token, "inbox", "east/n7")
    assert book.allows(token, "inbox", "west/n7")
    assert book.allows(someone("client"), "inbox", "east/n7")


def test_the_right_to_send_depends_on_what_an_address_is_for() -> None:
    assert right_to_send("s", "a/b") == ("publish", "a/b")
    assert right_to_send("i", "7") == ("publish", "int:7")
    assert right_to_send("n", "east/n7") == ("publish", "node:east/n7")
    assert right_to_send("n", "east/n7@" + "0" * 32) == ("inbox", "east/n7")
    assert right_to_send("n", "east/n7@confirm:" + "0" * 32) == ("confirm", "east/n7")
    everything = RuleBook.of([Rule("publish", "#")])
    assert everything.allows(PMU, "publish", "node:east/n7")
    assert not everything.allows(PMU, "confirm", "east/n7")
    assert not RuleBook.of([Rule("publish", "east/#")]).allows(PMU, "publish", "node:east/n7")
    assert RuleBook.of([Rule("publish", "node:east/#")]).allows(PMU, "publish", "node:east/n7")


@pytest.mark.spec("NS-072")
@pytest.mark.parametrize("action", RULED)
@pytest.mark.parametrize("address", ["grid/west", "int:42", 'odd "name"/\\', "pmu-9/volts", "é/\x7f"])
def test_a_refusal_names_everything_and_the_rule_in_it_works(action: Action, address: str) -> None:
    decision = RuleBook.of([]).allows(PMU, action, address)
    assert not decision
    first, _, toml = decision.reason.partition("\n")
    assert action in first
    assert "client 'pmu-1'" in first
    assert address.split("/")[0].split('"')[0] in first
    book = RuleBook.of(rules_in(toml))
    assert book.allows(PMU, action, address)
    assert not book.allows(someone("client"), action, address)
    with pytest.raises(DeniedError, match="no rule allows it"):
        decision.require()


@pytest.mark.parametrize("asked", ["#", "a/+", "a/#", "+/b", "a/b/#"])
def test_a_subscription_must_lie_entirely_within_an_allowed_pattern(asked: str) -> None:
    book = RuleBook.of([Rule("subscribe", ("a/b", "a/c"))])
    decision = book.allows(PMU, "subscribe", asked)
    assert not decision
    assert f'pattern = "{asked}"' in decision.reason


def test_a_subscription_that_merely_meets_a_denied_pattern_is_refused() -> None:
    book = RuleBook.of([Rule("subscribe", "grid/#"), Rule("subscribe", "grid/+/secret", deny=True)])
    assert book.allows(PMU, "subscribe", "grid/west/volts")
    assert book.allows(PMU, "subscribe", "grid/west")
    for asked in ("grid/#", "grid/west/+", "grid/west/#", "grid/+/secret", "grid/west/secret"):
        decision = book.allows(PMU, "subscribe", asked)
        assert not decision
        assert "number 2 denies" in decision.reason
        assert "deny = true" in decision.reason


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(patterns, st.booleans()), max_size=4), patterns)
def test_whatever_a_granted_subscription_matches_could_be_subscribed_one_by_one(
    given_rules: list[tuple[str, bool]], asked: str
) -> None:
    book = RuleBook.of([Rule("subscribe", pattern, deny=deny) for pattern, deny in given_rules])
    if book.allows(PMU, "subscribe", asked):
        wanted = RuleBook.of([Rule("publish", asked)])
        for topic in TOPICS:
            if wanted.allows(PMU, "publish", topic):
                assert book.allows(PMU, "subscribe", topic)


@pytest.mark.parametrize("action", ["publish", "register", "control", "admin"])
def test_only_subscriptions_may_ask_for_patterns(action: Action) -> None:
    book = RuleBook.of([Rule(action, "#")])
    assert book.allows(PMU, action, "a/b")
    decision = book.allows(PMU, action, "a/+")
    assert not decision
    assert "name one address" in decision.reason


def test_names_and_roles_choose_whom_a_rule_is_for() -> None:
    book = RuleBook.of(
        [Rule("publish", "n/#", names=("pmu-*",)), Rule("publish", "r/#", roles=("broker",)),
         Rule("publish", "both", names=("pmu-1",), roles=("broker",))]
    )  # fmt: skip
    assert book.allows(PMU, "publish", "n/1")
    assert not book.allows(someone("client", "xpmu-1"), "publish", "n/1")
    assert not book.allows(PMU, "publish", "r/1")
    assert book.allows(someone("broker"), "publish", "r/1")
    assert not book.allows(PMU, "publish", "both")
    assert book.allows(someone("broker", "pmu-1"), "publish", "both")


def test_own_name_in_a_pattern_is_the_asker() -> None:
    book = RuleBook.of([Rule("register", "{name}/#")])
    assert book.allows(PMU, "register", "pmu-1/volts")
    assert not book.allows(PMU, "register", "pmu-2/volts")
    assert not book.allows(PMU, "register", "{name}/volts")


@pytest.mark.parametrize("name", ["#", "+", "a/b", "", "a b", "-x", "x" * 65, "pmu\n"])
def test_no_identity_can_have_a_name_that_widens_a_pattern(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        Identity(name=name, role="client", how="dev")
    assert dev_identity(name, "client").name


@pytest.mark.spec("GS-160")
@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("node", {"publish", "subscribe", "confirm", "register", "watch"}),
        ("broker", {"subscribe", "watch", "control"}),
        ("admin", set(ACTIONS)),
        ("client", set()),
    ],
)
def test_what_each_role_may_do_without_rules(role: Role, allowed: set[str]) -> None:
    book = RuleBook.of([])
    assert {action for action in ACTIONS if book.allows(someone(role), action, "west/Setup")} == allowed | FREE_ACTIONS


def test_a_deny_rule_beats_built_in_rules_and_itself_names_roles() -> None:
    book = RuleBook.of([Rule("admin", "west/#", roles=("admin",), deny=True)])
    assert not book.allows(someone("admin"), "admin", "west/reload")
    assert book.allows(someone("admin"), "admin", "east/reload")


def test_rules_of_a_token_replace_what_is_allowed_but_not_what_is_denied() -> None:
    bearer = Identity(name="pmu-1", role="client", how="token", grants=(Rule("publish", "a/#"),))
    book = RuleBook.of([Rule(("publish", "subscribe"), "#"), Rule("publish", "a/secret", deny=True)])
    assert book.allows(bearer, "publish", "a/b")
    assert not book.allows(bearer, "publish", "a/secret")
    assert not book.allows(bearer, "publish", "b")
    decision = book.allows(bearer, "subscribe", "a/b")
    assert not decision
    assert "issue a token with this one" in decision.reason


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule("publish", "a/#/b"), "number 1: `pattern`.*last level"),
        (Rule("publish", ()), "empty list"),
        (Rule((), "a"), "empty list"),
        (Rule("publish", "a", names=("a/b",)), "`names`"),
    ],
)
def test_a_wrong_rule_is_named(rule: Rule, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RuleBook.of([rule])


def test_a_bad_address_is_refused_and_not_an_error() -> None:
    decision = RuleBook.open().allows(PMU, "publish", "a//b")
    assert not decision
    assert "empty level" in decision.reason


def test_the_open_book_allows_everything() -> None:
    book = RuleBook.open()
    assert all(book.allows(dev_identity("me", "client"), action, "long:5") for action in ACTIONS)


@given(
    allowed=st.lists(st.sampled_from(["#", "+", "a/#", "a/b"]), max_size=2),
    denied=st.lists(st.sampled_from(["z", "int:42"]), max_size=1),
    action=st.sampled_from(ACTIONS),
)
def test_who_may_everywhere_is_refused_nowhere(allowed: list[str], denied: list[str], action: Action) -> None:
    rules = [Rule(action, pattern) for pattern in allowed] + [Rule(action, pattern, deny=True) for pattern in denied]
    book = RuleBook.of(rules)
    if book.rights(PMU, action).everywhere:
        assert all(book.allows(PMU, action, address) for address in [*TOPICS, "int:42", "long:-1"])
    else:
        assert "#" not in allowed or denied
    assert not book.rights(PMU, "control" if action != "control" else "publish").everywhere
