"""Datagrams to a multicast group (MR-027): one sender, any number of receivers that share its key and only listen."""

from __future__ import annotations

import socket
import struct

from chappe.engine._stack import Stack
from chappe.errors import LinkError
from chappe.links._datagram import DatagramSession
from chappe.links.address import Address
from chappe.links.datagram import DEFAULT_BUFFER, DatagramEndpoint
from chappe.links.link import reason_of
from chappe.links.options import LinkOptions, apply
from chappe.links.tick import FlushTick

ANY = "0.0.0.0"


class GroupEndpoint(DatagramEndpoint):
    """A socket that sends to a group or listens to it, never both."""

    def __init__(self, sock: socket.socket, address: Address, tick: FlushTick) -> None:
        super().__init__(sock, address, tick)
        self.address = address

    def send_as(self, session: int, stack: Stack, port: int, key: bytes) -> DatagramSession:
        """What the port queues goes to the whole group under that key."""
        return self.bind(session, stack, port, key, opener=False, peer=(self.address.host, self.address.port))

    def listen_to(self, session: int, stack: Stack, port: int, key: bytes) -> DatagramSession:
        """What the sender of the group says under that key arrives on the port; nothing is ever answered."""
        bound = self.bind(session, stack, port, key, opener=True, mute=True)
        self._tick.unbind(port, self)
        return bound


def open_sender(address: Address, tick: FlushTick) -> GroupEndpoint:
    """A socket that sends to the group; LinkError if its interface does not exist."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        apply(sock, LinkOptions(send_buffer=DEFAULT_BUFFER))
        interface = address.option("interface", ANY)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, int(address.option("ttl", "1")))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # receivers on this machine hear it, too
        if interface != ANY:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        sock.bind((interface, 0))
    except OSError as error:
        sock.close()
        raise LinkError(f"can not send to {address}: {reason_of(error)}") from error
    return GroupEndpoint(sock, address, tick)


def open_receiver(address: Address, tick: FlushTick) -> GroupEndpoint:
    """A socket that has joined the group; LinkError if its interface does not exist or the port is taken."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        apply(sock, LinkOptions(receive_buffer=DEFAULT_BUFFER))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several receivers of one machine
        sock.bind((address.host, address.port))
        group, interface = socket.inet_aton(address.host), socket.inet_aton(address.option("interface", ANY))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", group, interface))
    except OSError as error:
        sock.close()
        raise LinkError(f"can not join {address}: {reason_of(error)}") from error
    return GroupEndpoint(sock, address, tick)
