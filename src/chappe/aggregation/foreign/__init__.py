"""Wrappers of other monitoring systems: their results as records, and our records in their form (MR-078, MR-080)."""
