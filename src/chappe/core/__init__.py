"""The node without I/O: sessions, registrations, variables, paths, commands; messages in, effects out."""
