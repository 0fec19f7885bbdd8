"""The log of a broker: from messages to actions, in order, bounded, with what was left out counted."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from chappe.archive.feeds import FEEDS
from chappe.core.broker import log as broker_log
from chappe.core.broker.log import BrokerLog
from chappe.wire import management as m
from chappe.wire.base import Done, Failed, Grant, Message, Qos, Variable

ENTITY = m.Entity("desk", b"")
VARIABLE = Variable(7, "plant", "volts", "float", 1, 20_000_000, 3, 0)
GRANT = Grant(40_000_000, 2, 9_000_000, 2, 3, 50_000_000)


def told(log: BrokerLog, now_ns: int = 0) -> list[dict[str, Any]]:
    """All rows since the last time, with their details."""
    rows = [row for body in log.take(now_ns) for row in FEEDS["broker"].rows("broker/log/leaf", body, 1)]
    return [{**row, "detail": json.loads(str(row["detail"]))} for row in rows]


def exchanged(*steps: tuple[str, str, Message]) -> list[tuple[str, str, dict[str, Any]]]:
    """(action, subject, detail) of messages that were ("<", from) received or (">", to) sent, one nanosecond apart."""
    log = BrokerLog("leaf")
    for at, (way, address, message) in enumerate(steps):
        (log.received if way == "<" else log.sent)(address, message, 100 + at)
    return [(row["action"], row["subject"], row["detail"]) for row in told(log)]


WANT = m.SubscribeRequest(
    id=5, entity=ENTITY, publisher="plant", variable="volts", qos=(Qos(40_000_000, redundancy=2),), modes=3
)
PATHS = (m.Path(VARIABLE, 1, "", "b", (40_000_000,), (3,), 3),)


@pytest.mark.parametrize(
    ("steps", "action", "subject", "some"),
    [
        ((("<", "router/a", m.Publish(id=1, entity=ENTITY, variable=VARIABLE)),
          (">", "router/a", m.Issued(id=1, variable_id=9))),
         "publish", "plant/volts", {"entity": "desk", "edge": "a", "variable_id": 9, "took_ns": 1}),
        ((("<", "router/a", m.Publish(id=1, entity=ENTITY, variable=VARIABLE)),
          (">", "router/a", Failed(id=1, code="exists", reason="taken"))),
         "publish_refused", "plant/volts", {"code": "exists", "reason": "taken", "variable_id": 0}),
        ((("<", "router/d", WANT), (">", "router/d", m.Granted(id=5, variable=VARIABLE, grants=(GRANT,), modes=3))),
         "subscribe", "plant/volts", {"entity": "desk", "edge": "d", "modes": 3, "rate_den": 20_000_000}),
        ((("<", "router/d", WANT), (">", "router/d", Failed(id=5, code="capacity", reason="r", obstacle="router/b"))),
         "subscribe_refused", "plant/volts", {"code": "capacity", "obstacle": "router/b", "best": []}),
        ((("<", "child/west", m.Seek(id=2, subscription="s", cloud="west", edge="e", request=WANT)),
          (">", "child/west", Failed(id=2, code="unknown", reason="r"))),
         "seek_refused", "plant/volts", {"cloud": "west", "edge": "e", "subscription": "s"}),
        (((">", "router/a", m.Setup(id=3, epoch=1, command=1, paths=PATHS)),), "path", "a", {}),
        (((">", "router/a", m.Teardown(id=3, epoch=1, command=1, paths=((7, 1),))),),
         "path_removed", "a", {"paths": [{"variable_id": 7, "path": 1}]}),
        (((">", "router/a", m.Displace(id=3, epoch=1, command=1, variable_id=4)),),
         "displace", "a", {"variable_id": 4}),
        (((">", "router/a", m.Withdrawn(variable_id=7, reason="over", entities=("x",))),),
         "withdraw", "#7", {"edge": "a", "reason": "over", "entities": ["x"]}),
        (((">", "router/a", m.Regranted(entity="x", variable=VARIABLE, grants=(GRANT, None), modes=1)),),
         "regrant", "plant/volts", {"entity": "x", "granted": [msgspec.structs.asdict(GRANT), None]}),
        ((("<", "operator/3", m.ChangeMode(id=8, mode=4)), (">", "operator/3", Done(id=8, note="without b"))),
         "mode", "leaf", {"mode": 4, "by": "operator", "note": "without b"}),
        ((("<", "parent", m.ChangeMode(id=8, mode=4)), (">", "parent", Failed(id=8, reason="no"))),
         "mode_refused", "leaf", {"by": "parent", "reason": "no"}),
        ((("<", "operator/3", m.AddRouter(id=8, name="n")), (">", "operator/3", Done(id=8))),
         "operate", "AddRouter", {"by": "operator", "name": "n"}),
        ((("<", "router/a", m.LinkState(peer="b", up=False)),), "link_down", "a-b", {"router": "a", "peer": "b"}),
        ((("<", "router/a", m.Join(router="a", issuer=b"", links=("b",))),), "router_up", "a", {"links": ["b"]}),
        ((("<", "router/a", m.Left(entity=ENTITY, gone=True)),), "client_left", "desk", {"gone": True, "edge": "a"}),
    ],
)  # fmt: skip
def test_messages_are_actions(
    steps: tuple[tuple[str, str, Message], ...], action: str, subject: str, some: dict[str, Any]
) -> None:
    ((found, of, detail),) = exchanged(*steps)
    assert (found, of) == (action, subject)
    assert some.items() <= detail.items()


def test_a_grant_says_what_was_wanted_and_what_is_given() -> None:
    ((_, _, detail),) = exchanged(
        ("<", "router/d", WANT), (">", "router/d", m.Granted(id=5, variable=VARIABLE, grants=(GRANT,), modes=3))
    )
    assert detail["wanted"] == [msgspec.structs.asdict(WANT.qos[0])]
    assert detail["granted"] == [msgspec.structs.asdict(GRANT)]


def test_a_command_that_fails_is_told_and_one_that_succeeds_is_not() -> None:
    setup = m.Setup(id=3, epoch=1, command=1, paths=PATHS)
    assert [action for action, _, _ in exchanged((">", "router/a", setup), ("<", "router/a", Done(id=3)))] == ["path"]
    refusal = Failed(id=3, code="invalid", reason="why")
    _, failed = exchanged((">", "router/a", setup), ("<", "router/a", refusal))
    assert failed == ("command_failed", "a", {"command": "Setup", "code": "invalid", "reason": "why"})


def test_names_are_known_from_what_went_before() -> None:
    actions = exchanged(
        ("<", "router/a", m.Publish(id=1, entity=ENTITY, variable=VARIABLE)),
        (">", "router/a", m.Issued(id=1, variable_id=9)),
        ("<", "router/a", m.Unpublish(id=2, entity=ENTITY, variable_id=9)),
        (">", "router/a", Done(id=2)),
    )
    assert [(action, subject) for action, subject, _ in actions] == [
        ("publish", "plant/volts"), ("unpublish", "plant/volts"),
    ]  # fmt: skip


def test_answers_after_a_loss_belong_to_nobody() -> None:
    log = BrokerLog("leaf")
    log.received("router/d", WANT, 1)
    log.lost("router/d", 2)
    log.sent("router/d", Done(id=5), 3)
    log.lost("operator/1", 4)
    assert [row["action"] for row in told(log)] == ["router_lost"]


def test_each_action_is_later_than_the_one_before_whatever_the_clock_does() -> None:
    log = BrokerLog("leaf")
    for now_ns in (50, 50, 20, 90, 90):
        log.happened("lead", "leaf", {}, now_ns)
    assert [row["created_ns"] for row in told(log)] == [50, 51, 52, 90, 91]


def test_many_actions_are_several_events_and_many_paths_several_actions() -> None:
    log = BrokerLog("leaf")
    for _ in range(broker_log.PART + 1):
        log.happened("lead", "leaf", {}, 1)
    assert len(log.take(2)) == 2
    log.sent("router/a", m.Setup(id=3, epoch=1, command=1, paths=PATHS * (broker_log.PATHS + 1)), 3)
    assert [len(row["detail"]["paths"]) for row in told(log)] == [broker_log.PATHS, 1]
    log.happened("a", "b", {"text": "x" * broker_log.PART_BYTES}, 4)
    log.happened("a", "b", {}, 4)
    assert len(log.take(5)) == 2


def test_too_many_at_once_are_counted_and_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_log, "WAITING", 3)
    log = BrokerLog("leaf")
    for _ in range(5):
        log.happened("lead", "leaf", {}, 1)
    rows = told(log, 9)
    assert [row["action"] for row in rows] == ["lead"] * 3 + ["log_dropped"]
    assert (rows[-1]["detail"], rows[-1]["created_ns"], log.dropped) == ({"count": 2}, 9, 2)
    log.happened("lead", "leaf", {}, 10)
    assert [row["action"] for row in told(log)] == ["lead"]


def test_requests_without_an_answer_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_log, "OPEN", 10)
    log = BrokerLog("leaf")
    for number in range(100):
        log.received("router/d", msgspec.structs.replace(WANT, id=number), 1)
        log.sent("router/d", m.Reset(id=number, epoch=1, command=number), 1)
    assert (len(log._asked), len(log._ordered)) == (10, 10)
    log.forget()
    assert (len(log._asked), len(log._ordered), log.take(1)) == (0, 0, [])
