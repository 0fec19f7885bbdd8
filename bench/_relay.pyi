def relay(inward: int, outward: int) -> int:
    """Copy until either side ends; bytes copied."""

def splice_relay(inward: int, outward: int, pipe_out: int, pipe_in: int) -> int:
    """Move until either side ends, through a pipe, so that the bytes never leave the kernel; bytes moved."""
