"""One HTML file about a mesh, from the tables that jobs wrote: plots without a script, nothing to fetch, no Spark."""
