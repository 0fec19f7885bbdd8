"""Directed graphs: shortest, cheapest and disjoint paths, by library where there is one."""
