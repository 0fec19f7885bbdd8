"""A node as a process: its loop, its signals, its log and its web page."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import structlog
import uvloop

from chappe.core.sections import Config, Listen, Log, NodeSection
from chappe.errors import ChappeError, ConfigError
from chappe.links import administrative
from chappe.links.negotiation import Capabilities
from chappe.runtime.background import Pacer
from chappe.runtime.config.reader import load
from chappe.runtime.mesh.pages import PUBLICATIONS, pages
from chappe.runtime.metrics import render
from chappe.runtime.node import Node
from chappe.runtime.web import JSON, TEXT, Answer, Page, Web
from chappe.security.redact import redact

log = structlog.get_logger(__name__)

DEFAULT_URL = "tcp://127.0.0.1:7400"
SPARE_FILES = 64  # beside connections
COLLECT_AFTER = 500  # new objects: 0.1 ms, or some times that if they are all to be freed
COLLECT_AGAIN = 20  # such collections before what they left is looked at once more: 1 ms
QUIET_AFTER = 200  # of those before all objects are looked at, once nothing is forwarded
FORCED_AFTER = 2_000  # or in any case: what old connections leave behind has to go
LOOK_S = 1.0  # between two looks whether that is due
SWITCH_S = 0.0005  # the loop waits no longer for a thread (pages, certificates) that computes; Python's own is 5 ms
ANSWER_S = 2.0  # a loop that does not answer for so long is not healthy


def dev_config(urls: tuple[str, ...] = (), name: str = "dev") -> Config:
    """The configuration of `chappe node --dev` without a file."""
    listen = tuple(Listen(url=url) for url in urls or (DEFAULT_URL,))
    return Config(listen=listen, node=NodeSection(name=name))


def run_node(source: str | Path | Config, *, dev: bool = False, announce: bool = True) -> int:
    """Run a node until SIGTERM or SIGINT; 0 after a drain. ConfigError and LinkError leave before it serves.

    SIGHUP reads the file again (with a `Config` instead of a file: only the certificates); what is wrong is logged and
    the old configuration stays. With `announce` each address is printed as a line `listening URL` once it is served.
    """
    config = source if isinstance(source, Config) else load(source, dev)
    path = None if isinstance(source, Config) else Path(source)
    start_log(config.log)
    open_many_files(config.limits.connections)
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, path, dev, announce))


def start_log(config: Log) -> None:
    """Log to stderr, without secrets."""
    render_line: Any = (
        structlog.processors.JSONRenderer()
        if config.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            render_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, config.level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def open_many_files(connections: int) -> None:
    """Each connection is a file: use what the system allows, and say when that is less than the configuration."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < connections + SPARE_FILES:
        log.warning("fewer files than limits.connections may be open", files=hard, connections=connections)
    _make_room_for_files(min(hard, connections + SPARE_FILES) if hard != resource.RLIM_INFINITY else connections)


def _make_room_for_files(count: int) -> None:
    """The kernel doubles its table of a process with threads when it is full, and an `accept` waits 20 ms for that."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, count - 1))
    os.close(descriptor)


async def _serve(config: Config, path: Path | None, dev: bool, announce: bool) -> int:
    loop = asyncio.get_running_loop()
    node = Node(config, dev=dev)
    over = asyncio.Event()
    again = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    await node.start()
    collect_briefly()
    if node.turns is not None:
        node.turns.restart()
    web = None
    try:
        web = open_web(node, loop)
        if announce:
            for address in node.addresses:
                print(f"listening {address}", flush=True)
            if web is not None:
                print(f"metrics {web.url}", flush=True)
            print("serving", flush=True)
        tasks = [
            loop.create_task(_reload_on(again, node, path)),
            loop.create_task(collect_in_quiet(Pacer(node.shell.data_bytes))),
        ]
        await over.wait()
        for task in tasks:
            task.cancel()
        log.info("draining", node=node.name, seconds=config.node.drain_timeout_s)
        await node.stop(drain=True)
    finally:
        if web is not None:
            await asyncio.to_thread(web.close)
    return 0


def collect_briefly() -> None:
    """A collection stops forwarding: look at few objects at a time, and never at those that were there at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, COLLECT_AGAIN, 1 << 30)


async def collect_in_quiet(pacer: Pacer) -> None:
    """Look at all objects while nothing is forwarded, for it takes long; in any case after very many new ones."""
    while True:
        await asyncio.sleep(LOOK_S)
        due = gc.get_count()[2]
        if due >= FORCED_AFTER or (due >= QUIET_AFTER and not pacer.busy):
            gc.collect()


async def _reload_on(again: asyncio.Event, node: Node, path: Path | None) -> None:
    while True:
        await again.wait()
        again.clear()
        try:
            await node.reload(load(path, node.dev) if path else node.config)
        except ChappeError as error:
            log.error("configuration not reloaded, the old one stays", reason=str(error))


def open_web(node: Node, loop: asyncio.AbstractEventLoop) -> Web | None:
    """The pages of a node that runs in this loop; None if its configuration has no address for them."""
    access = node.config.metrics
    if not access.address:
        return None
    shown = node.dev or access.proves  # what `List` shows only to those who may subscribe

    def metrics() -> bytes:
        return render(asyncio.run_coroutine_threadsafe(node.snapshot(scrape=True), loop).result(ANSWER_S))

    async def state() -> bool:
        return node.ready

    def health() -> Answer:
        asyncio.run_coroutine_threadsafe(state(), loop).result(ANSWER_S)
        return 200, "alive"

    def ready() -> Answer:
        is_ready = asyncio.run_coroutine_threadsafe(state(), loop).result(ANSWER_S)
        return (200, "ready") if is_ready else (503, "not listening")

    async def rows(what: str, name: str) -> tuple[str, list[dict[str, Any]]]:
        hidden = node.mesh is None or (what == "publications" and not shown)
        return node.name, [] if hidden or node.mesh is None else node.mesh.page_rows(what, name)

    def asked(what: str, name: str) -> tuple[str, list[dict[str, Any]]]:
        return asyncio.run_coroutine_threadsafe(rows(what, name), loop).result(ANSWER_S)

    async def offered() -> bytes:
        return Capabilities(node.name, tuple(node.addresses)).page()

    def links(query: dict[str, str]) -> tuple[int, str, bytes]:
        return 200, JSON, asyncio.run_coroutine_threadsafe(offered(), loop).result(ANSWER_S)

    served: dict[str, Page] = {**pages(asked), administrative.PATH: links}
    if not shown:
        served[PUBLICATIONS] = _withheld
    return Web(access, metrics, health, ready, served, public=(administrative.PATH,))


def _withheld(asked: dict[str, str]) -> tuple[int, str, bytes]:
    reason = "publications are shown to viewers who prove who they are: set metrics.token or metrics.client_ca\n"
    return 403, TEXT, reason.encode()


def main(arguments: list[str] | None = None) -> int:
    """`python -m chappe.node FILE`, or `--dev --listen URL` without a file."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m chappe.node", description="Run a node of the mesh.")
    parser.add_argument("file", nargs="?", help="TOML file with its configuration")
    parser.add_argument("--dev", action="store_true", help="no authentication; loopback addresses only")
    parser.add_argument("--listen", action="append", default=[], metavar="URL", help=f"with --dev; {DEFAULT_URL}")
    parser.add_argument("--name", default="dev", help="with --dev and without a file: name of the node")
    parser.add_argument("--check", action="store_true", help="say what is wrong with the file, and end")
    chosen = parser.parse_args(arguments)
    if chosen.file is None and not chosen.dev:
        parser.error("give a FILE, or --dev for a node without one")
    if chosen.file is not None and chosen.listen:
        parser.error("--listen is for a node without a FILE; write [[listen]] there")
    try:
        if chosen.check:
            from chappe.runtime.config.reader import check

            check(chosen.file or parser.error("--check needs a FILE"), dev=chosen.dev)
            print(f"{chosen.file}: ok")
            return 0
        return run_node(chosen.file or dev_config(tuple(chosen.listen), chosen.name), dev=chosen.dev)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except ChappeError as error:
        print(error, file=sys.stderr)
        return 1
