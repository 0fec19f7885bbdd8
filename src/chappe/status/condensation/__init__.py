"""Condensation functions: what they compute, when, and where they are placed."""
