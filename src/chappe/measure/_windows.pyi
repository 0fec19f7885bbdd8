import numpy as np
from numpy.typing import NDArray

from chappe.measure.windows import Windows

def absorb(windows: Windows, rows: NDArray[np.intp], latency_ms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """What `Windows.absorb` does; two rows: which samples deviate, and which restarted their window."""
