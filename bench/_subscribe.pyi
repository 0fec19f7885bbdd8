from typing import Any

class Subscriber:
    """Connections that receive the same stream each; `run` returns when the shared phase says END."""

    def __init__(
        self,
        protocol: str,
        fds: list[int],
        publishers: int,
        size: int,
        shared: memoryview,
        first_slot: int = 0,
        heads: list[bytes] | None = None,
        capture: int = 0,
    ) -> None: ...
    def run(self) -> bool:
        """Receive until END; False if a connection ended or broke before."""
    def feed(self, i: int, chunk: bytes | bytearray | memoryview) -> None:
        """Bytes that another transport (TLS) received for connection i."""
    def take_reply(self, i: int) -> bytes:
        """What connection i has to answer (heartbeats), for another transport to send."""
    def captured(self, i: int) -> bytes:
        """The status records that connection i received, in order."""
    def result(self) -> dict[str, Any]:
        """Counts of each connection and the histogram of all."""
