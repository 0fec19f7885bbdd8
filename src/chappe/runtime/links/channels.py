"""Which peers a node has: those of its file, and the channels that its broker gives it (GS-012)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chappe.core.sections import Config, Peer
from chappe.runtime.config.checks import problems
from chappe.runtime.links.peers import PeerLink, Peers
from chappe.wire.management import Channel

Remove = Callable[[PeerLink, str], None]


class Channels:
    """Keeps the list of peers in step with both; `remove(peer, reason)` ends one that is in neither."""

    def __init__(self, config: Config, peers: Peers, remove: Remove, dev: bool) -> None:
        self._config = config
        self._peers = peers
        self._remove = remove
        self._dev = dev
        self._channels: tuple[Channel, ...] = ()  # that a broker gave this node
        peers.configure(config.peer, config.topic_route)

    def reload(self, config: Config) -> None:
        """The file has other peers, perhaps."""
        self._config = config
        for peer in self._peers.configure(self._all(self._channels), config.topic_route):
            self._remove(peer, "no longer in the configuration")

    def configure(self, channels: Sequence[Channel]) -> str:
        """Have these channels and no others; the answer says what is wrong with them, or is empty."""
        try:
            peers = self._all(channels)
        except msgspec.ValidationError as error:
            return f"channels: {error}"
        found = problems(msgspec.structs.replace(self._config, peer=peers), dev=self._dev)
        if found:
            return "; ".join(found)
        self._channels = tuple(channels)
        over = self._peers.configure(peers, self._config.topic_route)
        over += [peer for peer in self._peers if not peer.listed]
        for peer in over:
            self._remove(peer, "the broker knows of no such channel")
        self._peers.start()
        return ""

    def _all(self, channels: Sequence[Channel]) -> tuple[Peer, ...]:
        """What the broker says of a peer in the file is taken over."""
        peers = {peer.name: peer for peer in self._config.peer}
        for channel in channels:
            known = peers.get(channel.peer, Peer(name=channel.peer))
            url, level, data = channel.url or known.url, channel.level, channel.data
            fields = {**msgspec.structs.asdict(known), "url": url, "level": level, "data": data}
            peers[channel.peer] = msgspec.convert(fields, Peer)
        return tuple(peers.values())
