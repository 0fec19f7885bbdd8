"""The parts of a client, made in the order in which they need each other."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.client import durable, published, reporting, subscribed, watched
from chappe.client._core import ClientCore
from chappe.client.cells import Cells
from chappe.client.exchange import Exchange
from chappe.client.floods import Floods
from chappe.client.node_requests import NodeRequests
from chappe.client.owner import Owner
from chappe.client.patterns import Patterns
from chappe.client.replies import Replies
from chappe.client.requests import Requests
from chappe.client.session import ConnectOptions


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a client hands its calls to."""

    core: ClientCore
    requests: Requests
    exchange: Exchange
    node: NodeRequests
    published: published.Published
    watched: watched.Watched
    patterns: Patterns
    floods: Floods
    reporting: reporting.QualityReporter | None
    subscribed: subscribed.Subscribed
    replies: Replies
    durable: durable.Durable
    cells: Cells


def build_parts(owner: Owner, options: ConnectOptions) -> Parts:
    """The parts of a client that is not connected yet."""
    core = ClientCore(queue_bytes=options.queue_bytes, status_bytes=options.status_bytes)
    requests = Requests(core.send_control)
    exchange = Exchange(owner, requests)
    node = NodeRequests(exchange, core.send_control)
    watches = watched.Watched(owner, core, requests)
    reporter = reporting.QualityReporter(owner, core.publish) if options.report_quality else None
    if reporter is not None:
        watches.watchdog.on_any = reporter.violated
    subscriptions = subscribed.Subscribed(owner, core, requests, exchange)
    events = durable.Durable(owner, core, subscriptions, node)
    core.on_durable = events.publish
    return Parts(
        core=core,
        requests=requests,
        exchange=exchange,
        node=node,
        published=published.Published(owner, core, requests),
        watched=watches,
        patterns=Patterns(owner, requests, exchange, watches),
        floods=Floods(core, node),
        reporting=reporter,
        subscribed=subscriptions,
        replies=Replies(core, owner.drain, subscriptions.open_inbox),
        durable=events,
        cells=Cells(owner, core, requests, exchange, node),
    )
