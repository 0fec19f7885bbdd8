"""What a broker does, seen at its messages and written down as actions for whoever listens (docs/reference/feeds.md).

No clock and no socket: messages and the wall clock's time go in, bodies of events come out. It keeps a bounded number
of actions until they are taken, and counts what it had to leave out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from chappe.status.machine import Address
from chappe.wire import feeds
from chappe.wire import management as m
from chappe.wire.base import Command, Done, Failed, Grant, Message, Qos, Request, Variable

WAITING = 20_000  # actions that are kept until they are taken
WAITING_BYTES = 16 << 20
OPEN = 50_000  # requests whose answers are waited for
NAMES = 200_000  # variables whose names are known
PART, PART_BYTES = 500, 256 << 10  # of one event
PATHS = 200  # of one action

ASKED: frozenset[type[Message]] = frozenset([
    m.Publish, m.Unpublish, m.SubscribeRequest, m.UnsubscribeRequest, m.Condense, m.Uncondense, m.Seek,
    m.ChangeMode, m.SetFlood, m.ClearFlood,
    m.AddRouter, m.RemoveRouter, m.AddChannel, m.RemoveChannel, m.AddChild, m.RemoveChild,
])  # fmt: skip
Detail = dict[str, Any]
Key = tuple[Address, int]
_encode = msgspec.json.Encoder().encode


class BrokerLog:
    """The log of one role; `received`, `sent` and `lost` are to be called while `on` is true."""

    def __init__(self, role: str) -> None:
        self.on = False
        self.epoch = 0  # of the newest term
        self.dropped = 0  # actions that nobody was told
        self._role = role
        self._actions: list[feeds.Action] = []
        self._bytes = 0
        self._untold = 0  # of those dropped
        self._last_ns = 0
        self._asked: dict[Key, tuple[Request, int]] = {}
        self._ordered: dict[Key, str] = {}
        self._names: dict[int, str] = {}

    def happened(self, action: str, subject: str, detail: Detail | msgspec.Struct, now_ns: int) -> None:
        """Write an action down."""
        if len(self._actions) >= WAITING or self._bytes >= WAITING_BYTES:
            self.dropped += 1
            self._untold += 1
        else:
            self._append(action, subject, detail, now_ns)

    def _append(self, action: str, subject: str, detail: Detail | msgspec.Struct, now_ns: int) -> None:
        # Strictly later than the one before: the time is the order, whatever the clock does meanwhile.
        self._last_ns = max(now_ns, self._last_ns + 1)
        encoded = _encode(detail)
        self._bytes += len(encoded)
        self._actions.append(feeds.Action(action, subject, self._last_ns, msgspec.Raw(encoded)))

    def take(self, now_ns: int) -> list[bytes]:
        """The bodies of events that tell everything since the last time."""
        if self._untold:
            count, self._untold = self._untold, 0
            self._append("log_dropped", self._role, {"count": count}, now_ns)
        if not self._actions:
            return []
        actions, self._actions, self._bytes = self._actions, [], 0
        bodies, start, size = [], 0, 0
        for at, action in enumerate(actions):
            size += len(memoryview(action.detail))
            if at + 1 == len(actions) or size >= PART_BYTES or at + 1 - start >= PART:
                bodies.append(_encode(feeds.Actions(epoch=self.epoch, actions=tuple(actions[start : at + 1]))))
                start, size = at + 1, 0
        return bodies

    def forget(self) -> None:
        """Nobody listens: what is under way is of no interest."""
        self._actions, self._bytes, self._untold = [], 0, 0
        self._asked.clear()
        self._ordered.clear()
        self._names.clear()

    # --- what comes in

    def received(self, source: Address, message: Message, now_ns: int) -> None:
        """A message of a router, another broker or an operator."""
        detail: Detail
        match message:
            case Done() | Failed():
                order = self._ordered.pop((source, message.id), "")
                if order and isinstance(message, Failed):
                    detail = {"command": order, "code": message.code, "reason": message.reason}
                    self.happened("command_failed", _name(source), detail, now_ns)
            case m.Join():
                self.happened("router_up", message.router, {"links": message.links}, now_ns)
            case m.LinkState():
                router = _name(source)
                state = "link_up" if message.up else "link_down"
                self.happened(state, f"{router}-{message.peer}", {"router": router, "peer": message.peer}, now_ns)
            case m.Left():
                detail = {"edge": _name(source), "gone": message.gone}
                self.happened("client_left", message.entity.name, detail, now_ns)
            case Request() if type(message) in ASKED:
                if len(self._asked) >= OPEN:
                    self._asked.pop(next(iter(self._asked)))
                self._asked[source, message.id] = (message, now_ns)

    def lost(self, address: Address, now_ns: int) -> None:
        """A connection is gone."""
        kind, _, name = address.partition("/")
        if kind in ("router", "child", "parent"):
            self.happened(f"{kind}_lost", name or self._role, {}, now_ns)
        for open_ones in (self._asked, self._ordered):
            for key in [key for key in open_ones if key[0] == address]:
                del open_ones[key]

    # --- what goes out

    def sent(self, to: Address, message: Message, now_ns: int) -> None:
        """A message that leaves: what it says is durable."""
        match message:
            case Command():
                self._orders(to, message, now_ns)
            case m.Withdrawn():
                subject = self._names.get(message.variable_id, f"#{message.variable_id}")
                detail = {"edge": _name(to), "variable_id": message.variable_id, "reason": message.reason,
                          "entities": message.entities}  # fmt: skip
                self.happened("withdraw", subject, detail, now_ns)
            case m.Regranted():
                detail = {"entity": message.entity, "edge": _name(to), **_of(message.variable), "modes": message.modes,
                          "granted": _qualities(message.grants)}  # fmt: skip
                self.happened("regrant", _subject(message.variable), detail, now_ns)
            case Done() | Failed() | m.Issued() | m.Granted():
                asked = self._asked.pop((to, message.id), None)
                if asked is not None:
                    self._answered(to, asked[0], message, now_ns - asked[1], now_ns)

    def _orders(self, to: Address, command: Command, now_ns: int) -> None:
        router = _name(to)
        if len(self._ordered) >= OPEN:
            self._ordered.pop(next(iter(self._ordered)))
        self._ordered[to, command.id] = type(command).__name__
        match command:
            case m.Setup():
                for start in range(0, len(command.paths), PATHS):
                    paths = [_path(path) for path in command.paths[start : start + PATHS]]
                    self.happened("path", router, _Paths(paths), now_ns)
            case m.Teardown():
                for start in range(0, len(command.paths), PATHS):
                    gone = [{"variable_id": number, "path": path}
                            for number, path in command.paths[start : start + PATHS]]  # fmt: skip
                    self.happened("path_removed", router, {"paths": gone}, now_ns)
            case m.Flood():
                variable = command.variable
                detail = {"variable_id": variable.variable_id, "name": _subject(variable), "levels": command.levels}
                self.happened("flood", router, detail, now_ns)
            case m.Place():
                detail = {"variable_id": command.output.variable_id, "name": _subject(command.output),
                          **_function(command.function)}  # fmt: skip
                self.happened("place", router, detail, now_ns)
            case m.Displace():
                self.happened("displace", router, {"variable_id": command.variable_id}, now_ns)

    def _answered(self, to: Address, asked: Request, answer: Message, took_ns: int, now_ns: int) -> None:
        entity = getattr(asked, "entity", None)
        detail: Detail = {"entity": entity.name if entity is not None else "", "edge": _name(to)}
        refused = isinstance(answer, Failed)
        failure = {"code": answer.code, "reason": answer.reason} if isinstance(answer, Failed) else {}
        match asked:
            case m.Publish():
                number = answer.variable_id if isinstance(answer, m.Issued) else 0
                self._know(number, _subject(asked.variable))
                detail |= {**_of(asked.variable), "variable_id": number, "priority": asked.variable.priority}
                action, subject = "publish", _subject(asked.variable)
            case m.SubscribeRequest():
                detail |= self._wanted(asked, answer)
                action, subject = "subscribe", f"{asked.publisher}/{asked.variable}"
            case m.Seek():
                detail = {"cloud": asked.cloud, "edge": asked.edge, "subscription": asked.subscription,
                          **self._wanted(asked.request, answer)}  # fmt: skip
                action, subject = "seek", f"{asked.request.publisher}/{asked.request.variable}"
            case m.Condense():
                number = answer.variable_id if isinstance(answer, m.Issued) else 0
                detail |= {"variable_id": number, **_function(asked.function)}
                action, subject = "condense", f"{asked.function.publisher}/{asked.function.variable}"
            case m.Unpublish() | m.UnsubscribeRequest():
                detail["variable_id"] = asked.variable_id
                action = "unpublish" if isinstance(asked, m.Unpublish) else "unsubscribe"
                subject = self._names.get(asked.variable_id, f"#{asked.variable_id}")
            case m.Uncondense():
                action, subject = "uncondense", f"{asked.publisher}/{asked.variable}"
            case m.ChangeMode():
                note = answer.note if isinstance(answer, Done) else ""
                detail = {"mode": asked.mode, "rank": asked.rank, "by": to.partition("/")[0], "note": note}
                action, subject = "mode", self._role
            case _:
                fields = {name: _plain(getattr(asked, name)) for name in asked.__struct_fields__ if name != "id"}
                detail = {"by": to.partition("/")[0], **fields}
                action, subject = "operate", type(asked).__name__
        detail |= {"took_ns": took_ns, **failure}
        self.happened(f"{action}_refused" if refused else action, subject, detail, now_ns)

    def _wanted(self, want: m.SubscribeRequest, answer: Message) -> Detail:
        detail: Detail = {"modes": want.modes, "wanted": _qualities(want.qos)}
        if isinstance(answer, m.Granted):
            self._know(answer.variable.variable_id, _subject(answer.variable))
            detail |= {**_of(answer.variable), "modes": answer.modes, "granted": _qualities(answer.grants)}
        elif isinstance(answer, Failed):
            detail |= {"best": _qualities(answer.best), "obstacle": answer.obstacle}
        return detail

    def _know(self, number: int, name: str) -> None:
        if number:
            if len(self._names) >= NAMES:
                self._names.pop(next(iter(self._names)))
            self._names[number] = name


def _name(address: Address) -> str:
    return address.partition("/")[2] or address


def _subject(variable: Variable) -> str:
    return f"{variable.publisher}/{variable.variable}"


def _of(variable: Variable) -> Detail:
    return {"variable_id": variable.variable_id, "type": variable.type, "rate_num": variable.rate_num,
            "rate_den": variable.rate_den}  # fmt: skip


class _Path(msgspec.Struct):
    variable_id: int
    name: str
    path: int
    source: str
    target: str
    intervals_ns: tuple[int, ...]
    priorities: tuple[int, ...]
    modes: int


class _Paths(msgspec.Struct):
    paths: list[_Path]


def _path(path: m.Path) -> _Path:
    variable = path.variable
    return _Path(
        variable.variable_id, f"{variable.publisher}/{variable.variable}", path.path, path.source, path.target,
        path.intervals_ns, path.priorities, path.modes,
    )  # fmt: skip


def _function(function: m.Function) -> Detail:
    inputs = [{"name": f"{each.publisher}/{each.variable}", "interval_ns": each.interval_ns}
              for each in function.inputs]  # fmt: skip
    return {"calculator": function.calculator, "trigger": function.trigger, "inputs": inputs}


@lru_cache(4096)  # thousands of subscriptions want the same
def _qualities(given: tuple[Qos | Grant | None, ...]) -> msgspec.Raw:
    """The qualities of a subscription by mode, with the names of their fields."""
    return msgspec.Raw(_encode([None if each is None else msgspec.structs.asdict(each) for each in given]))


def _plain(value: Any) -> Any:
    return _of(value) if isinstance(value, Variable) else value
