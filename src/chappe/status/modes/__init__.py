"""Operating modes: how a change is carried through, and which request counts."""
