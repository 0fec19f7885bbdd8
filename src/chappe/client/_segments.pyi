class SegmentQueue:
    """What is reserved stays contiguous and in place until `release` passes it."""

    def __init__(self, usual: int = 65536, spare_limit: int = 64) -> None: ...
