def encode_names(source: str, destination: str) -> tuple[bytes, int]:
    """Destination and source as a header has them, and the length of the first."""
