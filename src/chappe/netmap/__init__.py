"""Graphs of routers and channels: shortest, cheapest and disjoint paths."""
