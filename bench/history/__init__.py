"""`chappe bench history`: real processes under faults, every operation recorded, and a checker of the histories."""
