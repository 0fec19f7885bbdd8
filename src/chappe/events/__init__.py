"""Topic events across the mesh: interest, routes, and the member that puts them together."""
