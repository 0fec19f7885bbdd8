"""Connections of a node: peers, clients, datagrams, multicast groups."""
