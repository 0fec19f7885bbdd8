"""Cells: named ends, and routes that spread one flow over many paths in proportion to the bandwidth free on each."""
