"""Byte-stream links (NS-007, NS-012): TCP, TLS and Unix sockets behind one interface."""

from chappe.links.dial import dial
from chappe.links.link import Link, OnLost, Raw, control_frame
from chappe.links.listen import Accepted, Listener, listen
from chappe.links.options import BufferSizes, LinkOptions
from chappe.links.tick import FlushTick

__all__ = [
    "Accepted",
    "BufferSizes",
    "FlushTick",
    "Link",
    "LinkOptions",
    "Listener",
    "OnLost",
    "Raw",
    "control_frame",
    "dial",
    "listen",
]
