"""Whole meshes in one process: virtual time, modelled links, and the same engine and protocol objects as a node."""
