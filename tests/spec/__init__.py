"""The rows of the specification and which tests demonstrate them."""
