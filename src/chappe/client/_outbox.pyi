class Outbox:
    """Accepts until its bound, hands out in order, forgets an event only when the node has it."""

    flushed: int
    def __init__(self, queue_bytes: int, status_bytes: int) -> None: ...
