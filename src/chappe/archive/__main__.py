"""`python -m chappe.archive FILE.toml`: here, and only here, the role meets the client and the page."""

import sys

from chappe.archive.process import main
from chappe.client.connecting import connect
from chappe.client.quality import Qos
from chappe.runtime.web import Web

sys.exit(main(sys.argv[1:], connect, Qos, Web))
