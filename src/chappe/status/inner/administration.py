"""What operators change below an inner broker while it runs: children, and channels between their clouds (GS-089)."""

from __future__ import annotations

from chappe.status.inner.calls import Calls
from chappe.status.inner.claims import Claims
from chappe.status.inner.decisions import Decisions
from chappe.status.inner.netview import NetView
from chappe.status.leaf.state import ChannelItem, Item
from chappe.status.leaf.topology_state import pair
from chappe.status.machine import Address
from chappe.status.outbox import Outbox
from chappe.status.topology import overclaimed
from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import AddChannel, AddChild, RemoveChannel, RemoveChild

ANSWER_NS = 5_000_000_000


class ChildItem(Item):
    """A child beyond the deployment file, or one removed from it."""

    removed: bool = False


class TreeAdministration:
    """Every change is durable; the leaves at both ends of a channel get it now, and again whenever they join."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, claims: Claims, decisions: Decisions) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._claims = claims
        self._decisions = decisions
        self._altered: dict[str, ChannelItem] = {}

    def restore(self, children: dict[str, ChildItem], channels: dict[str, ChannelItem]) -> None:
        for role, child in children.items():
            if child.removed and role in self._view.children:
                self._view.remove_child(role)
            elif not child.removed and role not in self._view.children:
                self._view.add_child(role)
        for key, channel in channels.items():
            self._altered[key] = channel
            if not channel.removed:
                self._view.add_channel(channel)
            elif key in self._view.managed_channels:
                self._view.remove_channel(channel.a, channel.b)

    # --- children ------------------------------------------------------------------------------------------------

    def add_child(self, source: Address, request: AddChild) -> None:
        if request.role in self._view.children:
            self._fail(source, request.id, "exists", f"{request.role} is a child of {self._view.role} already")
        elif not request.role or request.role == self._view.role:
            self._fail(source, request.id, "invalid", f"{request.role!r} cannot be a child of {self._view.role}")
        else:
            self._view.add_child(request.role)
            self._out.put("child", request.role, ChildItem())
            self._out.send(source, Done(id=request.id))

    def remove_child(self, source: Address, request: RemoveChild) -> bool:
        """Refused while a subscription, a name or a channel needs it."""
        role = request.role
        if role not in self._view.children:
            self._fail(source, request.id, "unknown", f"{self._view.role} has no child {role}")
            return False
        clouds = set(self._view.brokers(role))
        user = next((key for key, decision in self._decisions.all.items() if clouds & set(decision.item.clouds)), "")
        channel = next(
            (
                key for key, managed in self._view.managed_channels.items()
                if clouds & {self._view.cloud_of(managed.item.a), self._view.cloud_of(managed.item.b)}
            ),
            "",
        )  # fmt: skip
        name = next((name for name, item in self._claims.items.items() if item.cloud in clouds), "")
        if user or channel or name:
            what = (
                f"the subscription {user}" if user else f"the channel {channel}" if channel else f"the publisher {name}"
            )
            self._fail(source, request.id, "invalid", f"{role} is used by {what}; remove that first")
            return False
        self._view.remove_child(role)
        self._out.put("child", role, ChildItem(removed=True))
        self._out.send(source, Done(id=request.id))
        return True

    # --- channels ------------------------------------------------------------------------------------------------

    def add_channel(self, source: Address, request: AddChannel, now_ns: int) -> None:
        problem = self._misplaced(request.a, request.b)
        if pair(request.a, request.b) in self._view.managed_channels:
            self._fail(source, request.id, "exists", f"there is a channel {request.a} - {request.b} already")
        elif problem:
            self._fail(source, request.id, "invalid", problem)
        elif min(request.bytes_per_s, request.latency_ns, request.security) < 0 or request.security > 2:
            self._fail(source, request.id, "invalid", f"channel {request.a} - {request.b}: bandwidth and latency must "
                       "not be negative, security is 0 to 2")  # fmt: skip
        elif claim := overclaimed(request.url, request.data, request.security):
            self._fail(source, request.id, "invalid", f"channel {request.a} - {request.b}: {claim}")
        else:
            item = ChannelItem(a=request.a, b=request.b, url=request.url, security=request.security,
                               bytes_per_s=request.bytes_per_s or 100_000_000.0, data=request.data,
                               latency_ns=request.latency_ns or 1_000_000, level=self._view.height)  # fmt: skip
            self._view.add_channel(item)
            self._alter(source, request.id, item, now_ns)

    def remove_channel(self, source: Address, request: RemoveChannel, now_ns: int) -> None:
        key = pair(request.a, request.b)
        managed = self._view.managed_channels.get(key)
        if managed is None:
            reason = f"{self._view.role} manages no channel {request.a} - {request.b}"
            self._fail(source, request.id, "unknown", reason)
        elif self._view.allocator.used(request.a, request.b):
            reason = f"a subscription uses the channel {request.a} - {request.b}; end it first"
            self._fail(source, request.id, "invalid", f"{reason} (see `subscriptions`, here and of brokers above)")
        else:
            item = managed.item
            item.removed = True
            self._view.remove_channel(item.a, item.b)
            self._alter(source, request.id, item, now_ns)

    def _misplaced(self, a: str, b: str) -> str:
        clouds = [self._view.cloud_of(a), self._view.cloud_of(b)]
        for router, cloud in zip((a, b), clouds, strict=True):
            if not cloud:
                return f"there is no router {router} below {self._view.role}"
        children = [self._view.child_of(cloud) for cloud in clouds]
        if children[0] == children[1]:
            return f"{a} and {b} are both below {children[0]}: that broker manages channels between them"
        return ""

    def _alter(self, source: Address, number: int, item: ChannelItem, now_ns: int) -> None:
        key = pair(item.a, item.b)
        self._altered[key] = item
        self._out.put("channel", key, item)
        for cloud in {self._view.cloud_of(item.a), self._view.cloud_of(item.b)}:
            self._send_channel(item, cloud, now_ns)
        self._out.send(source, Done(id=number))

    def joined(self, child: str, now_ns: int) -> None:
        """Its map is there: the leaves below it get the channels that differ from the deployment file."""
        clouds = {child, *self._view.below(child)}
        for item in self._altered.values():
            for cloud in {self._view.cloud_of(item.a), self._view.cloud_of(item.b)} & clouds:
                self._send_channel(item, cloud, now_ns)

    def _send_channel(self, item: ChannelItem, cloud: str, now_ns: int) -> None:
        child = self._view.reached(cloud)
        if not child:
            return
        request: AddChannel | RemoveChannel
        if item.removed:
            request = RemoveChannel(id=0, a=item.a, b=item.b, cloud=cloud)
        else:
            request = AddChannel(id=0, a=item.a, b=item.b, url=item.url, bytes_per_s=item.bytes_per_s,
                                 latency_ns=item.latency_ns, security=item.security, data=item.data, level=item.level,
                                 cloud=cloud)  # fmt: skip
        self._calls.call(f"child/{child}", request, _ignore, now_ns, ANSWER_NS)

    def _fail(self, source: Address, number: int, code: str, reason: str) -> None:
        self._out.send(source, Failed(id=number, reason=reason, code=code))


def _ignore(message: Message, now_ns: int) -> None:
    """A leaf that missed it gets it when it joins."""
