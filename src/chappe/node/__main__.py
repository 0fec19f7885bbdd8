"""`python -m chappe.node FILE`."""

import sys

from chappe.runtime.process import main

sys.exit(main())
