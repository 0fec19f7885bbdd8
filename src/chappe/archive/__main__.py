"""`python -m chappe.archive FILE.toml`."""

import sys

from chappe.archive.process import main

sys.exit(main(sys.argv[1:]))
