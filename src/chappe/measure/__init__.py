"""Links measured: formulas, costs, the measurement initiator of a node, and available bandwidth; no socket, no clock."""
