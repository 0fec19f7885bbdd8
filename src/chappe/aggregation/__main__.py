"""`python -m chappe.aggregation FILE.toml`: here, and only here, the role meets the client."""

import sys

from chappe.aggregation.process import main
from chappe.client.connecting import connect

sys.exit(main(sys.argv[1:], connect))
