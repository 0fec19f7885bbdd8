def relay(inward: int, outward: int) -> int:
    """Copy until either side ends; bytes copied."""
