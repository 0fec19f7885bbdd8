from collections.abc import Callable

NEVER: int
LARGE_BYTES: int

class Incoming:
    """A message that arrives: complete, or a large one whose pieces come one by one."""

    flow: ReceiveFlow | None
    source: str
    destination: str
    size: int
    complete: bool
    failure: Exception | None
    notify: Callable[[], None] | None

    def __init__(self, flow: ReceiveFlow | None, source: str, destination: str, body: bytes | None = None) -> None: ...
    def take(self) -> list[bytes]:
        """The pieces that have come and were not taken; their room is free again."""
    def skip(self) -> None:
        """Nobody wants the rest of it."""
    @property
    def waiting(self) -> bool: ...

class ReceiveFlow:
    """What one sender sends from one name to another."""

    id: int
    source: str
    destination: str
    held: int
    duplicates: int
    overflows: int
    invalid: int
    opened_ns: int
    active_ns: int
    ack_at_ns: int
    queued: bool
    waiting: bool
    on_room: Callable[[ReceiveFlow], None] | None

    def __init__(self, id: int, source: str, destination: str, *, limit: int = ...) -> None: ...
    def go_on(self, following: int, taken: int) -> None: ...
    @property
    def place(self) -> tuple[int, int]: ...
    @property
    def begun(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    def resize(self, limit: int) -> None: ...
    def receive(self, sequence: int, flags: int, body: bytes, now_ns: int, crowded: bool = False) -> bool: ...
    def take_messages(self) -> tuple[list[Incoming], list[Incoming]]: ...
    def end(self, failure: Exception) -> None: ...
    def acknowledgement(self, now_ns: int) -> bytes | None: ...

def answer(flow: int, source: str, destination: str, flags: int, text: str = "") -> bytes:
    """The frame of an acknowledgement that says only why: RESET (1) or REFUSED (2), to who sends at `destination`."""
