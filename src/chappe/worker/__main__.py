"""`python -m chappe.worker`: started by a router, commanded through its standard input."""

import sys

from chappe.worker.process import main

sys.exit(main())
