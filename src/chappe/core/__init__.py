"""The node without I/O: sessions, registrations, variables, paths, commands; requests in, outputs out."""
