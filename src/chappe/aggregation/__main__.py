"""`python -m chappe.aggregation FILE.toml`."""

import sys

from chappe.aggregation.process import main

sys.exit(main(sys.argv[1:]))
