"""`python -m chappe.node FILE` runs a node; what it is made of is in `core` and `runtime`."""
