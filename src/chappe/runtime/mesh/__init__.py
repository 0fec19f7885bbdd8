"""The measuring mesh bound to a node."""
