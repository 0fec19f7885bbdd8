def ping_pong(
    protocol: str,
    out_fd: int,
    back_fd: int,
    frame: bytes,
    places: tuple[int, int, int, int],
    size: int,
    rounds: int,
    warm: int,
    heads: list[bytes],
) -> list[int]:
    """Histogram of the times from writing a message to having it back; ConnectionError after 5 s of silence."""
