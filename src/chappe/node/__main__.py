"""`python -m chappe.node FILE`."""

import sys

from chappe.node.process import main

sys.exit(main())
