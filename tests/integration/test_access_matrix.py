"""The tables of docs/reference/access-rules.md against real connections: each action by each role, allowed and denied.

The cells come from the page: an action, a thing that it allows, or a role that is added there fails here until it is
tried. Each cell does the real thing and looks at what really happened, on one node with many connections.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from chappe.cells.machine import Cells
from chappe.runtime.node import Node
from chappe.security.config import Rule
from chappe.security.rules import ACTIONS, FREE_ACTIONS
from chappe.wire import control, management
from chappe.wire.parcels import CellParcel, ParcelFlag
from chappe.wire.payloads import Parcel
from tests.support.keys import Keys
from tests.support.meshes import quiet, wants, way
from tests.support.nodes import eventually, free_port, running
from tests.support.wireclient import WireClient

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "access-rules.md").read_text()
CLIENT_ROLES = ("client", "broker", "admin")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the page, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def vertex_ids() -> set[tuple[str, str]]:
    """(action, what it allows) of every row."""
    return {
        (row[0].strip("`"), re.sub(r" \(.*?\)", "", vertex_id).strip())
        for row in rows("Actions and their addresses")
        for vertex_id in re.split(r"[;,]", re.sub(r"\(.*?\)", "", row[1]))
    }


def built_in() -> dict[str, set[str]]:
    """The actions that each role may do everywhere."""
    found = {}
    for role, may in (row[:2] for row in rows("Built-in rules")):
        words = may.partition(":")[0]
        everything: set[str] = set(ACTIONS) if words == "everything" else set(words.split(", "))
        found[role.strip("`")] = set() if words == "nothing" else everything
    return found


BUILT_IN = built_in()

PATTERNS = {  # of the rules that allow or deny an action in this test, by action
    "publish": ("grid/west/#", "cell:far.#"),
    "subscribe": ("grid/east/#",),
    "inbox": ("#",),
    "confirm": ("#",),
    "register": ("{name}/#", "cell:own.#"),
    "watch": ("meter/#",),
    "control": ("hub/#",),
    "admin": ("hub/#",),
}


@dataclass(frozen=True)
class Case:
    """What the rules say to an identity, and how it proves itself."""

    name: str
    how: Literal["certificate", "token"]
    allow: str = ""  # pattern of a rule of the node: "here", "elsewhere"
    deny: bool = False  # the node denies it, too
    grant: str = ""  # pattern of the rule in its token: "here", "elsewhere"

    def expected(self, role: str, action: str) -> bool:
        if self.deny:
            return False
        if action in FREE_ACTIONS:
            return True
        if self.grant:
            return self.grant == "here"
        return self.allow == "here" or action in BUILT_IN[role]


CASES = (
    Case("bare", "certificate"),
    Case("ruled", "certificate", allow="here"),
    Case("astray", "certificate", allow="elsewhere"),
    Case("denied", "certificate", allow="here", deny=True),
    Case("tokened", "token"),
    Case("granted", "token", grant="here"),
    Case("narrowed", "token", allow="here", grant="elsewhere"),
    Case("vetoed", "token", grant="here", deny=True),
)


def pattern(action: str, where: str) -> tuple[str, ...]:
    return PATTERNS[action] if where == "here" else ("elsewhere/x",)


def rule_file() -> str:
    """The `[[rule]]` tables of all cases; identities are named ROLE.CASE.ACTION."""
    made = []
    for action in PATTERNS:
        for case in CASES:
            names = f'names = ["*.{case.name}.{action}"]\n'
            if case.allow:
                allowed_here = json.dumps(pattern(action, case.allow))
                made.append(f'[[rule]]\naction = "{action}"\npattern = {allowed_here}\n{names}')
            if case.deny:
                denied = json.dumps(PATTERNS[action])
                made.append(f'[[rule]]\naction = "{action}"\npattern = {denied}\n{names}deny = true\n')
    return "".join(made)


class World:
    """One node, and a trusted client at it that sees what got through."""

    def __init__(self, node: Node, keys: Keys, trusted: WireClient, meter: int) -> None:
        self.node = node
        self.keys = keys
        self.trusted = trusted
        self.meter = meter  # a variable of the trusted client
        self.commands = count(1)

    @asynccontextmanager
    async def client(self, role: str, case: Case, action: str) -> AsyncIterator[WireClient]:
        name = f"{role}.{case.name}.{action}"
        if case.how == "certificate":
            client = await WireClient.open(self.node.url, tls=self.keys.context(name, role), name=name)
        else:
            rules = (Rule(action, pattern(action, case.grant)),) if case.grant else None  # type: ignore[arg-type]
            token = self.keys.token(name, role, rules=rules)
            client = await WireClient.open(self.node.url, tls=self.keys.context(), token=token, name=name)
        try:
            yield client
        finally:
            await client.close()

    async def settle(self) -> None:
        """Everything that the node has taken so far has reached the trusted client."""
        mark = f"mark/{next(self.commands)}"
        self.trusted.publish("grid/mark", mark.encode())
        await self.trusted.until(lambda: any(body == mark.encode() for _, body in self.trusted.events))


def allowed(answer: control.Message, action: str, expected: type[control.Message]) -> bool:
    """Whether a request was carried out; a refusal must say what was asked for and why not."""
    if isinstance(answer, expected):
        return True
    assert isinstance(answer, control.Failed), answer
    assert answer.code == "denied", answer
    assert f"may not {action} " in answer.reason, answer
    return False


# --- what clients, brokers and administrators do ---------------------------------------------------------------------


async def emit(world: World, client: WireClient, name: str) -> bool:
    topic = f"grid/west/{name}"
    client.publish(topic, b"x")
    await client.flush()
    await world.settle()
    arrived = (topic, b"x") in world.trusted.events
    refusals = [each for each in client.told if isinstance(each, control.PublishRefused)]
    assert arrived != bool(refusals), (arrived, refusals)
    assert arrived or "may not publish " in refusals[0].reason
    assert arrived != bool(client.denials)
    return arrived


async def advertise(world: World, client: WireClient, name: str) -> bool:
    topic = f"grid/west/{name}/+"
    done = allowed(await client.ask(control.Advertise, pattern=topic), "publish", control.Done)
    listing = await world.trusted.ask(control.List, what="publications", of="grid/west/#")
    assert (topic in {row["topic"] for row in listing.rows}) == done
    return done


async def subscribe(world: World, client: WireClient, name: str) -> bool:
    topic = f"grid/east/{name}"
    done = allowed(await client.ask(control.Subscribe, pattern=topic), "subscribe", control.Done)
    world.trusted.publish(topic, b"y")
    await world.trusted.flush()
    await client.flush()
    if done:
        await client.until(lambda: (topic, b"y") in client.events)
    assert done or not client.events
    return done


async def open_inbox(world: World, client: WireClient, name: str) -> bool:
    answer = await client.ask(control.OpenInbox, key=secrets.token_bytes(16))
    done = allowed(answer, "inbox", control.InboxOpened)
    if done:
        world.trusted.publish(answer.address, b"i", kind="n")
        await client.until(lambda: (answer.address, b"i") in client.events)
    return done


async def send_to_inbox(world: World, client: WireClient, name: str) -> bool:
    return await sends(world, client, await world.trusted.open_inbox(secrets.token_bytes(16)), "inbox")


async def confirm(world: World, client: WireClient, name: str) -> bool:
    return await sends(world, client, await world.trusted.open_inbox(), "confirm")


async def sends(world: World, client: WireClient, address: str, action: str) -> bool:
    """Whether an event to an address of the trusted client arrives; the address is in no refusal."""
    body = secrets.token_bytes(8)
    before = len(client.told)
    client.publish(address, body, kind="n")
    await client.flush()
    await world.settle()
    refusals = [each for each in client.told[before:] if isinstance(each, control.PublishRefused)]
    assert ((address, body) in world.trusted.events) != bool(refusals)
    assert all(f"may not {action} " in each.reason and address not in each.reason for each in refusals)
    return not refusals


async def register(world: World, client: WireClient, name: str) -> bool:
    answer = await client.ask(control.Register, publisher=name, variable="v")
    done = allowed(answer, "register", control.Registered)
    entry = world.node.core.variables.directory.named(name, "v")
    assert (entry is not None) == done
    if done:
        await world.trusted.watch(f"{name}/v")
        client.publish_status(answer.variable_id, 4.5)
        await world.trusted.until(lambda: any(r.variable == answer.variable_id for r in world.trusted.records))
    return done


async def own_name(world: World, client: WireClient, name: str) -> bool:
    wanted = f"own.{name}"
    done = allowed(await client.ask(control.OwnNames, add=(wanted,)), "register", control.Done)
    assert (wanted in cell_of(world).names) == done
    if done:
        await client.ask(control.OwnNames, remove=(wanted,))
    return done


async def send_to_name(world: World, client: WireClient, name: str) -> bool:
    return await sends_parcel(world, client, name, "far.box", ParcelFlag.FIRST | ParcelFlag.LAST)


async def multicast(world: World, client: WireClient, name: str) -> bool:
    return await sends_parcel(world, client, name, "far.*", ParcelFlag.MULTICAST)


async def sends_parcel(world: World, client: WireClient, name: str, destination: str, flags: ParcelFlag) -> bool:
    """Whether a parcel to the name of the trusted client arrives. The source is given to the client by hand."""
    port = next(session.port for session in world.node.core.sessions.clients() if session.name == name)
    source = f"from.{secrets.token_hex(4)}"
    cell_of(world).add_names(port, (source,), "by hand")
    body, before = secrets.token_bytes(8), len(client.told)
    parcel = CellParcel(int.from_bytes(secrets.token_bytes(8), "big"), 0, destination, source, body, flags)
    client.send(Parcel(parcel.encode()))
    await client.flush()

    def arrived() -> bool:
        return any(CellParcel.decode(content).body == body for content in world.trusted.parcels)

    def refusals() -> list[Any]:
        return [each for each in client.told[before:] if isinstance(each, control.PublishRefused)]

    await eventually(lambda: arrived() or refusals())
    assert arrived() != bool(refusals())
    assert all("may not publish " in each.reason for each in refusals())
    cell_of(world).remove_names(port, (source,))
    return arrived()


def cell_of(world: World) -> Cells:
    assert world.node.core.cells is not None
    return world.node.core.cells


async def watch(world: World, client: WireClient, name: str) -> bool:
    answer = await client.ask(control.Watch, publisher="meter", variable="v")
    done = allowed(answer, "watch", control.Watching)
    world.trusted.publish_status(world.meter, 1.5)
    await world.trusted.flush()
    await client.flush()
    if done:
        await client.until(lambda: bool(client.records))
    assert done or not client.records
    return done


async def list_variables(world: World, client: WireClient, name: str) -> bool:
    listing = await client.ask(control.List, what="variables", limit=5000)
    assert isinstance(listing, control.Listing), listing
    shown = {row["publisher"] for row in listing.rows}
    return "meter" in shown


async def command(world: World, client: WireClient, name: str) -> bool:
    speed = control.Variable(5, "plant", "speed", "float", 1, 1_000_000, 3, 0)
    number = next(world.commands)
    path = management.Path(speed, number, "", "", (0,), (3,), 0xFFFF)
    answer = await client.ask(management.Setup, epoch=1, command=number, paths=(path,))
    done = allowed(answer, "control", control.Done)
    assert any(row["path"] == number for row in world.node.core.paths.rows()) == done
    line = world.keys.audit()[-1]
    assert (line["who"], line["outcome"]) == (name, "done" if done else "denied")
    return done


async def measure(world: World, client: WireClient, name: str) -> bool:
    return allowed(await client.ask(control.Measure), "control", control.Listing)


async def open_link(world: World, client: WireClient, name: str) -> bool:
    answer = await client.ask(control.OpenLink, to="nobody", kind="ws")
    assert isinstance(answer, control.Failed), answer
    if answer.code == "unknown":
        assert "'nobody' is no node that is connected" in answer.reason
        return True
    return allowed(answer, "control", control.Listing)


async def administer(world: World, client: WireClient, name: str) -> bool:
    return allowed(await client.ask(control.List, what="clients"), "admin", control.Listing)


Operation = Callable[[World, WireClient, str], Awaitable[bool]]
OPERATIONS: dict[tuple[str, str], Operation] = {
    ("publish", "emit to a topic"): emit,
    ("publish", "advertise a topic or pattern"): advertise,
    ("subscribe", "subscribe to a topic pattern"): subscribe,
    ("inbox", "open an inbox"): open_inbox,
    ("inbox", "send to an inbox"): send_to_inbox,
    ("confirm", "confirm durable events"): confirm,
    ("publish", "send messages to a name of a cell"): send_to_name,
    ("publish", "multicast to a prefix of names"): multicast,
    ("register", "publish a variable"): register,
    ("register", "have a name at a cell"): own_name,
    ("watch", "watch a variable"): watch,
    ("watch", "list variables"): list_variables,
    ("control", "send table commands"): command,
    ("control", "ask for measurements"): measure,
    ("control", "open a link"): open_link,
    ("admin", "administer a node"): administer,
}


def test_every_row_of_the_page_has_its_cells() -> None:
    assert vertex_ids() == set(OPERATIONS)
    assert {action for action, _ in OPERATIONS} == set(ACTIONS) == set(PATTERNS)
    assert set(BUILT_IN) == {"node", *CLIENT_ROLES}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    keys = Keys(tmp_path)
    toml = keys.toml("hub", rules="[measure]\ninterval_s = 60\nclients = true\n[cells]\n" + rule_file())
    async with running(toml, dev=False) as (node,):
        trusted = await WireClient.open(node.url, tls=keys.context(), token=keys.token("trusted", "admin"))
        try:
            await trusted.subscribe("grid/#")
            await trusted.ask(control.OwnNames, add=("far.box",))
            yield World(node, keys, trusted, await trusted.register("meter/v"))
        finally:
            await trusted.close()


@pytest.mark.spec("NS-072")
@pytest.mark.parametrize("role", CLIENT_ROLES)
async def test_a_role_does_what_the_rules_say_and_nothing_else(world: World, role: str) -> None:
    wrong: list[Any] = []
    for (action, vertex_id), operation in OPERATIONS.items():
        for case in CASES:
            cell = f"{role}, {case.name}: {action}, {vertex_id}"
            async with world.client(role, case, action) as client:
                try:
                    done = await operation(world, client, f"{role}.{case.name}.{action}")
                except AssertionError as error:
                    wrong.append((cell, str(error)[:300]))
                    continue
                if done != case.expected(role, action):
                    wrong.append((cell, "done" if done else "refused"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.spec("NS-072")
async def test_a_rule_for_one_action_allows_no_other(world: World) -> None:
    """Who may do one thing tries all the others, by a rule of the node and by one in a token."""
    wrong = []
    for case in CASES[1], CASES[5]:
        for action in ACTIONS:
            async with world.client("client", case, action) as client:
                for (other, vertex_id), operation in OPERATIONS.items():
                    done = await operation(world, client, f"client.{case.name}.{action}")
                    if done != (other == action or other in FREE_ACTIONS):
                        wrong.append(f"{case.name} for {action}: {other}, {vertex_id}")
                    client.told.clear()
    assert not wrong, "\n".join(map(str, wrong))


# --- what nodes do ---------------------------------------------------------------------------------------------------

FREE, CLOSED = "free", "closed"  # first levels of what is denied to no neighbour, and to one
DENIED = {  # to the neighbour that is named after the action
    "publish": [f"{CLOSED}/#"],
    "subscribe": [f"{CLOSED}/#", "node:subscribe"],
    "inbox": ["hub"],
    "confirm": ["hub"],
    "register": [f"{CLOSED}/#"],
    "watch": [f"{CLOSED}/#"],
}


@dataclass
class Neighbour:
    """A real node beside the hub, which denies it one action; with a client that it lets do all."""

    node: Node
    client: WireClient
    far: WireClient | None = None  # a client at another neighbour, behind the hub


def neighbourhood(keys: Keys) -> list[str]:
    """The files of the hub and of its neighbours, each of which is named after what it may not do."""
    port = free_port()
    names = ["nothing", *DENIED]
    rules = "".join(
        f'[[rule]]\naction = "{name}"\npattern = {json.dumps(denied)}\nnames = ["{name}"]\ndeny = true\n'
        for name, denied in DENIED.items()
    )
    peers = "".join(f'[[peer]]\nname = "{name}"\n' for name in names)
    paths = f'[[path]]\nvariables = "#"\nto = {json.dumps(names)}\n'
    mesh = "[mesh]\n[measure]\ninterval_s = 0.2\n"
    tomls = [keys.toml("hub", f"tls://127.0.0.1:{port}", peers + paths + mesh + rules)]
    actions = ["publish", "subscribe", "confirm", "register", "watch"]
    everything = f'[[rule]]\naction = {json.dumps(actions)}\npattern = "#"\nroles = ["client"]\n'
    for name in names:
        peer = f'[[peer]]\nname = "hub"\nurl = "tls://127.0.0.1:{port}"\n'
        path = '[[path]]\nvariables = "#"\nto = ["hub"]\n'
        tomls.append(keys.toml(name, rules=peer + path + mesh + everything))
    return tomls


@asynccontextmanager
async def neighbours(keys: Keys) -> AsyncIterator[tuple[Node, WireClient, dict[str, Neighbour]]]:
    async with running(*neighbourhood(keys), dev=False) as (hub, *others), AsyncExitStack() as stack:

        async def attached(node: Node, name: str, role: str) -> WireClient:
            client = await WireClient.open(node.url, tls=keys.context(), token=keys.token(name, role), name=name)
            stack.push_async_callback(client.close)
            return client

        trusted = await attached(hub, "trusted", "admin")
        found = {node.name: Neighbour(node, await attached(node, f"at-{node.name}", "client")) for node in others}
        for name, neighbour in found.items():
            neighbour.far = found["publish" if name == "nothing" else "nothing"].client
        await eventually(lambda: {name for name in found if way(hub, name)} == set(found))
        await eventually(lambda: all(way(node, "hub") for node in others))
        yield hub, trusted, found


async def forwards_to_hub(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    """Whether an event that the neighbour forwards reaches a client of the hub."""
    topic = f"{first}/to-hub/{neighbour.node.name}"
    await trusted.subscribe(topic)
    await eventually(lambda: wants(neighbour.node, topic) and quiet(neighbour.node))
    neighbour.client.publish(topic, b"x")
    await neighbour.client.flush()
    return await arrives(trusted, topic, neighbour.client)


async def is_advertised(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    topic = f"{first}/to-hub/{neighbour.node.name}"
    await neighbour.client.ask(control.Advertise, pattern=topic)
    open_topic = f"after/{first}/{neighbour.node.name}"
    await neighbour.client.ask(control.Advertise, pattern=open_topic)
    shown: set[str] = set()
    while open_topic not in shown:  # told later than the other
        listing = await trusted.ask(control.List, what="publications", limit=5000)
        shown = {row["topic"] for row in listing.rows}
    return topic in shown


async def gets_from_hub(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    """Whether an event of a client of the hub reaches a subscriber behind the neighbour."""
    topic, mark = f"{first}/from-hub/{neighbour.node.name}", f"mark/{first}/{neighbour.node.name}"
    for each in (topic, mark):
        await neighbour.client.subscribe(each)
    await eventually(lambda: wants(hub, mark) and quiet(hub))
    trusted.publish(topic, b"x")
    trusted.publish(mark, b"x")
    await neighbour.client.until(lambda: (mark, b"x") in neighbour.client.events)
    return (topic, b"x") in neighbour.client.events


async def arrives(receiver: WireClient, topic: str, publisher: WireClient, body: bytes = b"x") -> bool:
    """Whether an event has come, once a later one that nobody denies has."""
    mark = f"mark/{topic}"
    await receiver.subscribe("mark/#")
    while True:
        publisher.publish(mark, b"x")
        await publisher.flush()
        with suppress(TimeoutError):
            await receiver.until(lambda: (mark, b"x") in receiver.events, 0.2)
            return (topic, body) in receiver.events


async def announces_to_hub(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    """Whether a variable behind the neighbour is known at the hub, and its values arrive."""
    variable = f"to-hub-{neighbour.node.name}"
    number = await neighbour.client.register(f"{first}/{variable}")
    await neighbour.client.register(f"after-{first}/{variable}")
    await eventually(lambda: hub.core.variables.directory.named(f"after-{first}", variable) is not None)
    if hub.core.variables.directory.named(first, variable) is None:
        return False
    await trusted.watch(f"{first}/{variable}")
    neighbour.client.publish_status(number, 2.5)
    await trusted.until(lambda: any(record.variable == number for record in trusted.records))
    return True


async def is_sent_values(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    """Whether a variable of the hub is announced to the neighbour, and its values go there."""
    variable = f"from-hub-{neighbour.node.name}"
    number = await trusted.register(f"{first}/{variable}")
    after = await trusted.register(f"after-{first}/{variable}")
    await neighbour.client.watch(f"after-{first}/{variable}", wait_ns=30_000_000_000)
    known = neighbour.node.core.variables.directory.named(first, variable) is not None
    if known:
        await neighbour.client.watch(f"{first}/{variable}")
    trusted.publish_status(number, 3.5)
    trusted.publish_status(after, 3.5)
    await neighbour.client.until(lambda: any(record.variable == after for record in neighbour.client.records))
    assert any(record.variable == number for record in neighbour.client.records) == known
    return known


async def forwards_to_inbox(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    receiver = trusted if first == CLOSED else neighbour.far
    assert receiver is not None
    return await forwards_addressed(hub, receiver, neighbour, await receiver.open_inbox(secrets.token_bytes(16)))


async def forwards_confirmation(hub: Node, trusted: WireClient, neighbour: Neighbour, first: str) -> bool:
    receiver = trusted if first == CLOSED else neighbour.far
    assert receiver is not None
    return await forwards_addressed(hub, receiver, neighbour, await receiver.open_inbox())


async def forwards_addressed(hub: Node, receiver: WireClient, neighbour: Neighbour, address: str) -> bool:
    """Whether an event to an address at the hub, or behind it, arrives; or the hub refuses it."""
    body = secrets.token_bytes(8)
    before = hub.core.access.neighbours.refused.copy()
    neighbour.client.publish(address, body, kind="n")
    await neighbour.client.flush()
    await eventually(lambda: (address, body) in receiver.events or hub.core.access.neighbours.refused != before)
    refused = hub.core.access.neighbours.refused - before
    assert all(name == neighbour.node.name for name, _ in refused), refused
    assert not refused or not await arrives(receiver, address, neighbour.client, body), "refused, delivered"
    return not refused


NodeOperation = Callable[[Node, WireClient, Neighbour, str], Awaitable[bool]]
NODE_OPERATIONS: dict[tuple[str, str], NodeOperation | None] = {  # None: no node can ask for it; see the test below
    ("publish", "emit to a topic"): forwards_to_hub,
    ("publish", "advertise a topic or pattern"): is_advertised,
    ("subscribe", "subscribe to a topic pattern"): gets_from_hub,
    ("register", "publish a variable"): announces_to_hub,
    ("watch", "watch a variable"): is_sent_values,
    ("inbox", "send to an inbox"): forwards_to_inbox,
    ("confirm", "confirm durable events"): forwards_confirmation,
    ("inbox", "open an inbox"): None,
    ("register", "have a name at a cell"): None,
    ("watch", "list variables"): None,
    ("control", "send table commands"): None,
    ("control", "ask for measurements"): None,
    ("control", "open a link"): None,
    ("admin", "administer a node"): None,
}


NOT_JUDGED = {("publish", "send messages to a name of a cell"), ("publish", "multicast to a prefix of names")}
"""What nodes pass on and no rule for nodes holds for."""


@pytest.mark.spec("NS-072", "NS-073")
async def test_a_neighbour_forwards_everything_but_what_is_denied_to_it(tmp_path: Path) -> None:
    assert set(NODE_OPERATIONS) | NOT_JUDGED == vertex_ids()
    assert "Rules for `cell:` addresses hold for clients alone" in PAGE
    assert set(DENIED) == {row[0].strip("`") for row in rows("Deny rules for nodes")}
    wrong = []
    async with neighbours(Keys(tmp_path)) as (hub, trusted, found):
        for (action, vertex_id), operation in NODE_OPERATIONS.items():
            if operation is None:
                continue
            for name, neighbour in found.items():
                for first in (FREE, CLOSED):
                    free = action in BUILT_IN["node"] or action in FREE_ACTIONS
                    expected = free and not (first == CLOSED and name == action)
                    done = await operation(hub, trusted, neighbour, first)
                    if done != expected:
                        outcome = "done" if done else "refused"
                        wrong.append(f"{first}/# by the node that is denied {name}: {action}, {vertex_id}: {outcome}")
    assert not wrong, "\n".join(map(str, wrong))


async def is_handed(hub: Node, trusted: WireClient, client: WireClient, address: str) -> bool:
    """Whether an event to an address of a client behind a neighbour arrives; or the hub withholds it."""
    body, dropped = secrets.token_bytes(8), hub.engine.counters()["drop_not_permitted"]
    trusted.publish(address, body, kind="n")
    await trusted.flush()
    await eventually(lambda: (address, body) in client.events or hub.engine.counters()["drop_not_permitted"] > dropped)
    return (address, body) in client.events


@pytest.mark.spec("NS-072", "NS-073")
async def test_what_is_sent_to_a_node_is_withheld_from_a_neighbour_like_a_topic(tmp_path: Path) -> None:
    async with neighbours(Keys(tmp_path)) as (hub, trusted, found):
        for name, neighbour in found.items():
            for key in (secrets.token_bytes(16), b""):  # an inbox, and where events are confirmed
                address = await neighbour.client.open_inbox(key)
                assert await is_handed(hub, trusted, neighbour.client, address) == (name != "subscribe"), name
            assert bool(neighbour.client.events) == (name != "subscribe")


REQUESTS: dict[tuple[str, str], tuple[type[control.Request], dict[str, Any]]] = {
    ("inbox", "open an inbox"): (control.OpenInbox, {"key": bytes(16)}),
    ("register", "have a name at a cell"): (control.OwnNames, {"add": ("own.box",)}),
    ("watch", "list variables"): (control.List, {"what": "variables"}),
    ("control", "send table commands"): (management.Setup, {"epoch": 1, "command": 1, "paths": ()}),
    ("control", "ask for measurements"): (control.Measure, {}),
    ("control", "open a link"): (control.OpenLink, {"to": "nobody", "kind": "ws"}),
    ("admin", "administer a node"): (control.List, {"what": "clients"}),
}


async def test_nodes_ask_for_nothing_and_send_commands_by_a_rule_alone(tmp_path: Path) -> None:
    """A broker's process has the certificate of a node, and a rule lets it send commands."""
    assert set(REQUESTS) == {key for key, operation in NODE_OPERATIONS.items() if operation is None}
    keys = Keys(tmp_path)
    rules = "".join(
        f'[[rule]]\naction = "{action}"\npattern = "#"\nnames = ["{name}"]\n{deny}'
        for action in ("control", "admin")
        for name, deny in (("ruled", ""), ("denied", ""), ("denied", "deny = true\n"))
    )
    async with running(keys.toml("hub", rules=rules), dev=False) as (node,):
        for name in ("bare", "ruled", "denied"):
            client = await WireClient.open(node.url, tls=keys.context(name, "node"), role="node", name=name)
            try:
                for (action, vertex_id), (kind, fields) in REQUESTS.items():
                    answer = await client.ask(kind, **fields)
                    if vertex_id == "send table commands":
                        assert allowed(answer, action, control.Done) == (name == "ruled"), (name, answer)
                    else:
                        assert isinstance(answer, control.Failed), (name, answer)
                        assert answer.code == "unsupported", (name, answer)
            finally:
                await client.close()


async def test_a_node_comes_by_certificate_alone_and_is_no_client(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    async with running(keys.toml("hub"), dev=False) as (node,):
        for tls, hello in (
            (keys.context(), {"role": "node", "name": "n", "token": keys.token("n")}),
            (keys.context("c"), {"role": "node", "name": "c"}),
            (keys.context("n", "node"), {"role": "client", "name": "n"}),
            (keys.context("n", "node"), {"role": "node", "name": "other"}),
        ):
            client = await WireClient.connect(node.url, tls=tls, **hello)
            await client.until(client.closed.is_set)
            await client.close()
            assert client.refused is not None
            assert client.refused.code == "identity", client.refused
