"""History of a mesh: a log that is synced, closed into Parquet segments that any reader understands."""
