"""The files of nodes and deployments: read, checked, and turned into one frozen tree."""
