"""Links measured: formulas, costs, the measurement initiator of a node, available bandwidth; no socket, no clock."""
