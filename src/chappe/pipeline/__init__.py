"""Spark over what a mesh saw: a source and a sink, tables, and the jobs that fill them.

Nothing outside this package imports Spark, and importing this package does not either: `chappe.pipeline.spark` does,
once Java was found.
"""
