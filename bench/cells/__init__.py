"""`chappe bench cells`: flows over many paths, on shaped networks and in the simulator."""
