"""A node as a process: event loop, connections, workers, web pages; the only place with I/O."""
