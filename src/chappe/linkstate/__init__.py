"""The network map of a node: link-state advertisements, who originates and floods them, and the routes that follow."""
