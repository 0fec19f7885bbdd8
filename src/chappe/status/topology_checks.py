"""What a topology must satisfy beyond the types of its keys: one line `key: reason; remedy` for each problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chappe.errors import ConfigError
from chappe.links.address import Address, parse
from chappe.links.kinds import stream_schemes
from chappe.status.topology import Topology, overclaimed

SHOWN = 5  # names in one line


def problems(topology: Topology) -> list[str]:
    """What is wrong with a topology, empty if nothing; a check is left out where another makes it meaningless."""
    found = [*_repeated_names(topology), *_tree(topology)]
    if not found:
        found += _numbers(topology)
        found += _stores(topology)
    found += _routers(topology)
    found += _processes(topology)
    found += _addresses(topology)
    channels = [*_channels(topology)]
    if not channels and not any("router[" in line for line in found):
        channels += _apart(topology)
    return found + channels


def _repeated_names(topology: Topology) -> Iterator[str]:
    seen: dict[str, str] = {}
    for key, name in _names(topology):
        first = seen.setdefault(name, key)
        if first != key:
            yield f"{key}.name: {name!r} is already the name of {first}; every broker and router needs its own"


def _names(topology: Topology) -> Iterator[tuple[str, str]]:
    yield from ((f"broker[{at}]", broker.name) for at, broker in enumerate(topology.broker))
    yield from ((f"router[{at}]", router.name) for at, router in enumerate(topology.router))


def _tree(topology: Topology) -> Iterator[str]:
    known = topology.brokers
    strangers = False
    for at, broker in enumerate(topology.broker):
        if broker.parent and broker.parent not in known:
            strangers = True
            yield (
                f"broker[{at}].parent: {broker.parent!r}, the parent of {broker.name}, is no broker of this file; "
                f"write one of {_few(known)}, or leave it out for the root"
            )
    if strangers:
        return
    in_loop: set[str] = set()
    for at, broker in enumerate(topology.broker):
        loop = _loop(topology, broker.name)
        if loop and broker.name not in in_loop:
            in_loop.update(loop)
            yield (
                f"broker[{at}].parent: the parents form a loop ({' -> '.join(loop)}); "
                f"every broker must lead to the one root that has no parent"
            )
    if in_loop:
        return
    roots = [(at, broker.name) for at, broker in enumerate(topology.broker) if not broker.parent]
    for at, name in roots[1:]:
        yield f"broker[{at}].parent: {name} has none, and {roots[0][1]} is the root already; give {name} a parent"


def _loop(topology: Topology, start: str) -> list[str]:
    """The ancestors of a broker up to itself; empty if it is in no loop."""
    chain, at = [start], topology.brokers[start].parent
    while at and at not in chain:
        chain.append(at)
        at = topology.brokers[at].parent
    return [*chain, at] if at == start else []


def _numbers(topology: Topology) -> Iterator[str]:
    leaves, used = set(topology.leaves), dict[int, str]()
    for at, broker in enumerate(topology.broker):
        if broker.name not in leaves:
            if broker.number is not None:
                yield f"broker[{at}].number: {broker.name} has brokers below it and issues no ids; leave the number out"
            continue
        number = topology.number(broker.name)
        first = used.setdefault(number, broker.name)
        if first != broker.name:
            which = "by its name" if broker.number is None else "by this key"
            yield (
                f"broker[{at}].number: {broker.name} has the leaf number {number} {which}, and so has {first}: their "
                f"variables would get the same ids; give one of them another number from 0 to 1023"
            )


def _stores(topology: Topology) -> Iterator[str]:
    for at, broker in enumerate(topology.broker):
        if len(broker.listen) > 1 and not broker.shares_store:
            yield (
                f"broker[{at}].store: {broker.name} has {len(broker.listen)} processes, and a file of SQLite belongs "
                f"to one; give a postgresql:// url, or one address in listen"
            )


def _routers(topology: Topology) -> Iterator[str]:
    leaves = topology.leaves
    for at, router in enumerate(topology.router):
        if router.cloud not in topology.brokers:
            yield (
                f"router[{at}].cloud: {router.cloud!r}, the cloud of {router.name}, is no broker of this file; "
                f"write one of {_few(leaves) or 'the leaf brokers, after adding a [[broker]]'}"
            )
        elif router.cloud not in leaves:
            yield (
                f"router[{at}].cloud: {router.cloud} has brokers below it, and routers such as {router.name} belong "
                f"to a leaf; write one of {_few(leaves)}"
            )


def _processes(topology: Topology) -> Iterator[str]:
    """`chappe up --only NAME` must mean one process."""
    taken = dict(_process_names(topology))
    for at, router in enumerate(topology.router):
        if router.process and router.process in taken and router.process != router.name:
            yield (
                f"router[{at}].process: {router.process!r} is also {taken[router.process]}; "
                f"choose another word for the process"
            )
    names = set(topology.routers)
    for at, broker in enumerate(topology.broker):
        for index in range(len(broker.listen) if len(broker.listen) > 1 else 0):
            if broker.process(index) in names or broker.process(index) in topology.brokers:
                yield (
                    f"broker[{at}].listen: its process {index + 1} is called {broker.process(index)}, and so is "
                    f"another broker or router; rename that one"
                )


def _process_names(topology: Topology) -> Iterator[tuple[str, str]]:
    for broker in topology.broker:
        yield from (
            (broker.process(index), f"a process of broker {broker.name}") for index in range(len(broker.listen))
        )
    for router in topology.router:
        if not router.process:
            yield router.name, f"the process of router {router.name}"


def _addresses(topology: Topology) -> Iterator[str]:
    addresses = [
        (f"broker[{at}].listen[{index}]", url)
        for at, broker in enumerate(topology.broker)
        for index, url in enumerate(broker.listen)
    ]
    addresses += [(f"router[{at}].listen", router.listen) for at, router in enumerate(topology.router)]
    seen: dict[Address, str] = {}
    for key, url in addresses:
        try:
            address = parse(url, stream_schemes())
        except ConfigError as error:
            yield f"{key}: {error}"
            continue
        if address.scheme != "unix" and not address.port:
            yield f"{key}: port 0 means any port, and others must find it; give a number"
            continue
        first = seen.setdefault(address, key)
        if first != key:
            yield f"{key}: {address} is the address of {first} already; choose another port"


def _channels(topology: Topology) -> Iterator[str]:
    pairs: dict[frozenset[str], int] = {}
    for at, channel in enumerate(topology.channel):
        a, b = channel.between
        missing = [name for name in (a, b) if name not in topology.routers]
        for name in missing:
            yield f"channel[{at}].between: there is no router {name!r}; write [[router]] for it, or correct the name"
        if a == b:
            yield f"channel[{at}].between: it joins {a} with itself; name two routers"
        elif (first := pairs.setdefault(frozenset((a, b)), at)) != at:
            yield f"channel[{at}].between: {a} and {b} have channel[{first}] already; leave one of them out"
        claim = "" if b in missing else overclaimed(topology.routers[b].listen, channel.data, channel.security)
        if claim:
            yield f"channel[{at}].security: {claim}"
        if channel.data == "udp":
            for name in {a, b} - {*missing}:
                if topology.routers[name].listen.startswith("unix:"):
                    yield f"channel[{at}].data: udp needs an address with a port, and {name} listens on a Unix socket"


def _apart(topology: Topology) -> Iterator[str]:
    if len(topology.router) < 2:
        return
    start = topology.router[0].name
    reached = _reached(start, (channel.between for channel in topology.channel))
    alone = [(at, router.name) for at, router in enumerate(topology.router) if router.name not in reached]
    if alone:
        at, _ = alone[0]
        yield (
            f"router[{at}]: no path of channels leads from {start} to {_few(name for _, name in alone)}; "
            f"add a [[channel]] that joins them"
        )


def _reached(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    neighbours: dict[str, set[str]] = {}
    for a, b in pairs:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    reached, left = {start}, [start]
    while left:
        for name in neighbours.get(left.pop(), set()) - reached:
            reached.add(name)
            left.append(name)
    return reached


def _few(names: Iterable[str]) -> str:
    listed = [*names]
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
