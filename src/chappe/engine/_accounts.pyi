class Accounts:
    """What each identity holds of an engine's tables and queues."""

    max_topics: int
    max_routed_topics: int
    max_bytes: int

    def usage(self) -> dict[str, dict[str, int]]: ...
