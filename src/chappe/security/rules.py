"""Access rules: who may do what where, decided once per connection and address.

Everything is refused unless a rule allows it, and a deny rule beats every allow rule. What is subscribed to must lie
entirely within one allowing pattern and must not meet any denied pattern, so that no single message slips past.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from chappe.errors import ConfigError, DeniedError
from chappe.security.config import Action, Role, Rule
from chappe.security.identity import Identity
from chappe.security.patterns import AddressPattern, PatternError, topic_address
from chappe.wire.addresses import KIND, node_of, purpose

ACTIONS: tuple[Action, ...] = get_args(Action)
PATTERN_ACTIONS = frozenset({"subscribe", "watch"})  # these may ask for a pattern; all others name one address
FREE_ACTIONS = frozenset({"inbox"})  # allowed unless a rule denies it: who knows an inbox was given its address

BUILT_IN = (
    Rule(("publish", "subscribe", "confirm", "register", "watch"), "#", roles=("node",)),
    Rule(("subscribe", "watch", "control"), "#", roles=("broker",)),
    Rule(ACTIONS, "#", roles=("admin",)),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """True if allowed; the reason is for the person who was refused."""

    allowed: bool
    reason: str = ""
    rule: Rule | None = None  # that decided; None if none is there

    def __bool__(self) -> bool:
        return self.allowed

    def require(self) -> None:
        """Nothing if allowed; DeniedError with the reason otherwise."""
        if not self.allowed:
            raise DeniedError(self.reason)


@dataclass(frozen=True, slots=True)
class _Line:
    """One pattern of one rule, ready to compare."""

    rule: Rule
    pattern: AddressPattern
    place: int  # of the rule in its list, from 1; 0 for a built-in rule

    def concerns(self, identity: Identity, action: Action) -> bool:
        rule = self.rule
        return (
            action in rule.actions
            and (not rule.roles or identity.role in rule.roles)
            and (not rule.names or any(fnmatchcase(identity.name, name) for name in rule.names))
        )


@dataclass(frozen=True, slots=True)
class Rights:
    """Where one identity may do one thing, for whoever asks about many addresses; `RuleBook.rights` makes it."""

    _allow: tuple[AddressPattern, ...]
    _deny: tuple[AddressPattern, ...]

    @property
    def everywhere(self) -> bool:
        """Whether `permit` says yes to every address."""
        return not self._deny and any(pattern.space == "any" for pattern in self._allow)

    @property
    def nowhere(self) -> bool:
        """Whether `permit` says no to every address."""
        return not self._allow

    def permit(self, wanted: AddressPattern) -> bool:
        """Whether all of that may be had, as `RuleBook.allows` says it with `whole`."""
        return not any(pattern.overlaps(wanted) for pattern in self._deny) and any(
            pattern.covers(wanted) for pattern in self._allow
        )


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules of a node; build it with `RuleBook.of`."""

    _allow: tuple[_Line, ...]
    _deny: tuple[_Line, ...]

    @classmethod
    def of(cls, rules: Iterable[Rule], built_in: Iterable[Rule] = BUILT_IN) -> RuleBook:
        """A book of the rules of a configuration; ConfigError names the rule that is wrong and why."""
        own = [line for place, rule in enumerate(rules, 1) for line in _lines(rule, place)]
        given = [line for rule in built_in for line in _lines(rule, 0)]
        return cls(*_parted(own + given))

    @classmethod
    def open(cls) -> RuleBook:
        """A book that allows everything to everybody, for `--dev`."""
        return cls.of((), (Rule(ACTIONS, "#"),))

    def allows(self, identity: Identity, action: Action, address: str, *, whole: bool = False) -> Decision:
        """Whether this identity may do this here; a refusal names action, address, identity and the missing rule.

        whole: of an action that is done at one address, ask for all of a pattern.
        """
        if action not in ACTIONS:
            raise ValueError(f"unknown action {action!r}; actions are {', '.join(ACTIONS)}")
        try:
            wanted = AddressPattern.address(address)
        except PatternError as error:
            return Decision(False, f"{_describe_request(identity, action, address)}: {error}")
        if not whole and not wanted.exact and action not in PATTERN_ACTIONS:
            asked = _describe_request(identity, action, address)
            return Decision(False, f"{asked}: to {action}, name one address without '+' and '#'")
        allow, deny = self._lines_for(identity)
        for line in deny:
            if line.concerns(identity, action) and line.pattern.with_name(identity.name).overlaps(wanted):
                return Decision(
                    False, f"{_describe_request(identity, action, address)}: {_why_denied(line)}", line.rule
                )
        if action in FREE_ACTIONS:
            return Decision(True)
        for line in allow:
            if line.concerns(identity, action) and line.pattern.with_name(identity.name).covers(wanted):
                return Decision(True, rule=line.rule)
        missing = _what_is_missing(identity, action, address)
        return Decision(False, f"{_describe_request(identity, action, address)}: {missing}")

    def rights(self, identity: Identity, action: Action) -> Rights:
        """What this identity may do of that, so that whoever asks often has the rules chosen once."""
        allow, deny = (
            tuple(line.pattern.with_name(identity.name) for line in lines if line.concerns(identity, action))
            for lines in self._lines_for(identity)
        )
        return Rights((AddressPattern.rule("#"),) if action in FREE_ACTIONS else allow, deny)

    def denies(self, role: Role, action: Action) -> bool:
        """Whether a deny rule may be for somebody of that role."""
        rules = (line.rule for line in self._deny)
        return any(action in rule.actions and (not rule.roles or role in rule.roles) for rule in rules)

    def denials(self, identity: Identity) -> tuple[Rule, ...]:
        """The deny rules that are for this identity."""
        lines = (line for line in self._deny if any(line.concerns(identity, each) for each in line.rule.actions))
        return tuple(dict.fromkeys(line.rule for line in lines))

    def _lines_for(self, identity: Identity) -> tuple[tuple[_Line, ...], tuple[_Line, ...]]:
        if identity.grants is None:
            return self._allow, self._deny
        granted = [line for place, rule in enumerate(identity.grants, 1) for line in _lines(rule, place)]
        allow, deny = _parted(granted)
        return allow, self._deny + deny


def right_to_send(kind: str, topic: str) -> tuple[Action, str]:
    """Action and address that a rule must allow for events to a topic of the wire, numbers as decimal text."""
    if kind == KIND:
        match purpose(topic):
            case "inbox":
                return "inbox", node_of(topic)
            case "confirm":
                return "confirm", node_of(topic)
    return "publish", topic_address(kind, topic)


def as_toml(rule: Rule) -> str:
    """The rule as it would stand in a node's file."""
    lines = ["[[rule]]", f"action = {_value(rule.action)}", f"pattern = {_value(rule.pattern)}"]
    lines += [f"{key} = {_value(value)}" for key, value in (("names", rule.names), ("roles", rule.roles)) if value]
    return "\n".join(lines + ["deny = true"] * rule.deny)


def check_rule(rule: Rule, where: str = "[[rule]]") -> None:
    """Nothing if the rule can be used; ConfigError says where it is wrong and why."""
    if not rule.actions:
        raise ConfigError(f"{where}: `action` is an empty list; actions are {', '.join(ACTIONS)}")
    if not rule.patterns:
        raise ConfigError(f"{where}: `pattern` is an empty list; '#' stands for every address")
    for pattern in rule.patterns:
        try:
            AddressPattern.rule(pattern)
        except PatternError as error:
            raise ConfigError(f"{where}: `pattern`: {error}") from None
    for name in rule.names:
        if not name or not all(letter.isascii() and (letter.isalnum() or letter in "._-*") for letter in name):
            raise ConfigError(f"{where}: `names`: {name!r} is neither a name nor a name with '*'")


def _lines(rule: Rule, place: int) -> list[_Line]:
    check_rule(rule, f"[[rule]] number {place}" if place else "built-in rule")
    return [_Line(rule, AddressPattern.rule(pattern), place) for pattern in rule.patterns]


def _parted(lines: list[_Line]) -> tuple[tuple[_Line, ...], tuple[_Line, ...]]:
    allow = tuple(line for line in lines if not line.rule.deny)
    return allow, tuple(line for line in lines if line.rule.deny)


def _describe_request(identity: Identity, action: Action, address: str) -> str:
    return f"{identity} may not {action} {_quoted(address)}"


def _why_denied(line: _Line) -> str:
    return (
        f"[[rule]] number {line.place} denies it, and a deny rule beats every other rule. Remove or narrow it:\n"
        + as_toml(line.rule)
    )


def _what_is_missing(identity: Identity, action: Action, address: str) -> str:
    if identity.grants is not None:
        place, missing = "its token carries its own rules; issue a token with this one", Rule(action, address)
    else:
        place, missing = "no rule allows it; this one would", Rule(action, address, names=(identity.name,))
    return f"{place}:\n{as_toml(missing)}"


def _value(value: str | tuple[str, ...] | tuple[Action, ...] | tuple[Role, ...]) -> str:
    return _quoted(value) if isinstance(value, str) else "[" + ", ".join(map(_quoted, value)) + "]"


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
