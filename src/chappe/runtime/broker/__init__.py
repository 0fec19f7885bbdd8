"""A node that is a broker: leadership, commits, operators."""
