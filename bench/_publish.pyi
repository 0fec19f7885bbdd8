from typing import Any

class Publisher:
    """Connections that publish in turn; never more than `window` messages ahead of the slowest subscriber."""

    def __init__(
        self,
        protocol: str,
        fds: list[int],
        frames: list[bytes],
        places: tuple[int, int, int, int],
        shared: memoryview,
        subscribers: int,
        size: int,
        batch_bytes: int = 65536,
        window: int = 16384,
        rate: float = 0.0,
        limit: int = 0,
        run_head: bool = False,
        chatty: bool = False,
        credits: list[int] | None = None,
        heads: list[bytes] | None = None,
        nominal_ns: int = 0,
        every: int = 1,
    ) -> None: ...
    def run(self) -> bool:
        """Publish while the phase is RUN, until STOP or the limit; False if a connection ended before."""
    def linger(self) -> None:
        """Read what still comes back until END: a connection closed with unread answers would take messages with it."""
    def next_batch(self, turn: int, due: int) -> bytes:
        """Bytes to send now on that connection by another transport (TLS): at most `due` messages in all so far."""
    def feed(self, turn: int, chunk: bytes | bytearray | memoryview) -> bytes:
        """Bytes that came back on that connection; returns what has to be answered."""
    def probe(self) -> bytes:
        """One message on the last topic from no publisher, to see whether subscriptions have arrived."""
    def result(self) -> dict[str, Any]:
        """What was sent, by all connections together."""
