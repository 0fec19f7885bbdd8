"""Collects what nodes measured, keeps it, answers questions about it, and raises alerts.

`chappe.measure.record` is the one schema; `aggregator` and `monitor` are the two ends of a report, without I/O; `store`
and `xml` keep and show records; `process` is the role that a deployment runs (MR-081).
"""
