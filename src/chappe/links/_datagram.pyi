from chappe.engine._stack import Stack
from chappe.links._socket import Flusher, Target

def siphash128(key: bytes, data: bytes) -> bytes: ...

class DatagramSession(Target):
    session: int
    stack: Stack
    port: int
    accepted: int
    bad_tag: int
    replayed: int
    reflected: int
    bad_frame: int
    paths: int
    challenges: int
    moves: int
    written: int
    send_errors: int
    def writable(self) -> bool: ...
    def carry(self, port: int) -> None: ...
    @property
    def newest_accepted(self) -> int: ...
    @property
    def last_sent(self) -> int: ...
    @property
    def peer(self) -> tuple[str, int] | None: ...
    def counters(self) -> dict[str, int]: ...

class DatagramSocket:
    fd: int
    received: int
    too_short: int
    truncated: int
    unknown_session: int
    kernel_drops: int
    send_blocked: int
    receive_errors: int
    reads: int
    writes: int
    def __init__(self, fd: int, flusher: Flusher | None = None) -> None: ...
    def bind(
        self, session: int, stack: Stack, port: int, key: bytes, *, opener: bool, peer: tuple[str, int] | None = None,
        mute: bool = False,
    ) -> DatagramSession: ...  # fmt: skip
    def unbind(self, session: int) -> None: ...
    def readable(self) -> int: ...
    def on_readable(self) -> None: ...
    def counters(self) -> dict[str, int]: ...
