"""`python -m chappe.cli …`."""

from chappe.cli import main

main()
