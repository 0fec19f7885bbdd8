def accept_some(fd: int, most: int) -> list[tuple[int, str, int]]:
    """At most so many connections that wait: (descriptor, host, port) of each; those of Unix sockets have no host.

    They are non-blocking. OSError if none could be accepted for another reason than that there is none.
    """
