"""Topic events across the mesh: interest, ways, and the member that puts them together."""
