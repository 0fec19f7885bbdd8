"""The broker of a role without I/O: its connections, parents and operators, and what waits for a commit."""
