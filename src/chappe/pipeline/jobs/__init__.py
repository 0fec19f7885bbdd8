"""The jobs, one module each. `chappe.pipeline.catalogue` lists them."""
