"""One process of the load generator: reads its job as a line of JSON, says when it is ready, runs, says what it saw."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import msgspec
import numpy

from bench import secured
from bench._pingpong import ping_pong
from bench._publish import Publisher
from bench._subscribe import Subscriber
from bench.certificates import client_context
from bench.protocols import Link, protocol
from bench.shared import RUN, STOP, Shared
from chappe.errors import ChappeError
from chappe.wire.constants import ALL_MODES


class Job(msgspec.Struct, kw_only=True):
    """What one worker does; the same for every peer but for protocol and address."""

    role: str  # publish, subscribe, pingpong
    protocol: str
    host: str = "127.0.0.1"
    port: int
    pki: str | None = None  # folder of certificates: the row runs over TLS
    shared: int = -1  # descriptor of the shared block
    connections: int = 1
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    size: int = 64
    batch_bytes: int = 65536  # one write; 1 = one message a write
    window: int = 16384
    rate: float = 0.0  # messages a second over all connections, 0 = as fast as the window allows
    limit: int = 0  # messages over all connections, 0 = until told to stop
    rounds: int = 0  # of a ping-pong
    token: str | None = None  # of a node that wants one
    label: str = "bench"  # of this session, the same for both halves
    period_ns: int = 0  # of a status variable; 0: 30 events a second
    interval_ns: int = 0  # at which status variables are watched; 0: every event
    redundancy: int = 0  # disjoint paths that status variables are watched over; 0: without quality of service
    modes: int = ALL_MODES  # in which status variables are watched
    capture: int = 0  # bytes kept of what each subscriber gets, to find repeats; 0: only counted and timed
    every: int = 1  # a subscriber gets one of so many events of a variable: counts for the window
    nominal: bool = False  # stamps exactly a period apart, whenever they are sent


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def subscribe(job: Job, links: list[Link]) -> None:
    shared = Shared(fd=job.shared)
    speak = protocol(job.protocol)
    for link in links:
        speak.subscribe(link, job.topics)
    fds = [-1 if job.pki else link.sock.fileno() for link in links]
    heads = [link.head for link in links]
    receiver = Subscriber(speak.SCAN, fds, job.publishers, job.size, shared.words, 0, heads, job.capture)
    for link in links:
        link.sock.setblocking(False)
    say({"ready": True})
    before = cpu_s()
    whole = secured.receive(receiver, [link.sock for link in links], shared) if job.pki else receiver.run()
    result = receiver.result()
    if job.capture:
        for place, connection in enumerate(result["connections"]):
            connection.update(examined(receiver.captured(place)))
    say({"whole": whole, "cpu_s": cpu_s() - before, **result})


def examined(records: bytes) -> dict[str, int]:
    """How many records came twice, and how many after a later one; the value of each is its number."""
    numbers = numpy.frombuffer(records, dtype=">u8").reshape(-1, 3)[:, 2].astype(numpy.int64)
    late = int((numbers < numpy.maximum.accumulate(numbers)).sum()) if len(numbers) else 0
    return {"repeated": len(numbers) - len(numpy.unique(numbers)), "reordered": late}


def publish(job: Job, links: list[Link]) -> None:
    shared = Shared(fd=job.shared)
    speak = protocol(job.protocol)
    made = speak.frames(links[0], job.topics, job.size)
    for link in links[1:]:
        speak.frames(link, job.topics, job.size)  # each connection defines its own topics
    fds = [-1 if job.pki else link.sock.fileno() for link in links]
    sender = Publisher(
        speak.SCAN, fds, made.frames, made.places, shared.words, job.subscribers, job.size,
        batch_bytes=job.batch_bytes, window=job.window, rate=job.rate, limit=job.limit, run_head=made.run_head,
        chatty=made.chatty, credits=[link.credit for link in links], heads=[link.head for link in links],
        nominal_ns=job.period_ns if job.nominal else 0, every=job.every,
    )  # fmt: skip
    say({"ready": True})
    if job.protocol == "zmtp":
        probe_subscriptions(job, sender, links[0], shared)
    for link in links:
        link.sock.setblocking(bool(job.pki))
    before = cpu_s()
    if job.pki:
        whole = secured.send(sender, [link.sock for link in links], shared, job.rate, job.limit)
    else:
        whole = sender.run()
    say({"whole": whole, "cpu_s": cpu_s() - before, **sender.result()})
    if job.pki:
        secured.linger(shared)
    else:
        sender.linger()


def probe_subscriptions(job: Job, sender: Publisher, link: Link, shared: Shared) -> None:
    """ZeroMQ confirms no subscription: send marked messages until each subscriber has seen one."""
    while shared.phase < RUN:
        time.sleep(0.001)
    deadline = time.monotonic() + 10
    while shared.phase < STOP and not all(shared.probed(i) for i in range(job.subscribers)):
        if time.monotonic() > deadline:
            raise ChappeError("subscriptions did not reach the ZeroMQ proxy within 10 s")
        link.sock.sendall(sender.probe())
        time.sleep(0.005)


def pingpong(job: Job, links: list[Link]) -> None:
    speak = protocol(job.protocol)
    out, back = links
    made = speak.frames(out, 1, job.size)  # first: a status variable exists before it is watched
    speak.subscribe(back, 1)
    if job.protocol == "zmtp":
        time.sleep(0.3)  # the proxy does not say when it has a subscription
    say({"ready": True})
    frame = made.frames[0]
    if made.run_head:
        frame = b"\x01" + len(frame).to_bytes(3, "big") + frame
        shift = 4
    else:
        shift = 0
    places = tuple(place + shift if place >= 0 else -1 for place in made.places)
    sys.stdin.readline()  # the first round comes after whoever measures has read the node's CPU time
    before = cpu_s()
    warm = max(10, job.rounds // 10)
    if job.pki:
        histogram = secured.ping_pong(speak.SCAN, out, back, frame, places, job.size, job.rounds, warm)
    else:
        out.sock.setblocking(True)
        back.sock.setblocking(True)
        histogram = ping_pong(
            speak.SCAN, out.sock.fileno(), back.sock.fileno(), frame, places,  # type: ignore[arg-type]
            job.size, job.rounds, warm, [out.head, back.head],
        )  # fmt: skip
    say({"cpu_s": cpu_s() - before, "histogram": histogram})


def main() -> int:
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    links: list[Link] = []
    try:
        tls = client_context(job.pki) if job.pki else None
        speak = protocol(job.protocol)
        credentials = {"token": job.token} if job.token else {}
        count = 2 if job.role == "pingpong" else job.connections
        for _ in range(count):
            link = speak.connect((job.host, job.port), tls, **credentials)
            link.label, link.period_ns, link.interval_ns = job.label, job.period_ns, job.interval_ns
            link.redundancy, link.modes = job.redundancy, job.modes
            links.append(link)
        {"publish": publish, "subscribe": subscribe, "pingpong": pingpong}[job.role](job, links)
    except (ChappeError, OSError, ValueError) as error:
        say({"error": f"{job.role} over {job.protocol}: {error}"})
        return 1
    finally:
        for link in links:
            link.sock.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
