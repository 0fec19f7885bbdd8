"""What a node's file may say about its cell, and what it is told when that is wrong."""

from __future__ import annotations

import pytest

from chappe.core.cell_settings import settings_of
from chappe.core.sections import Cells
from chappe.errors import ConfigError
from chappe.runtime.config.reader import parse

SECOND = 1_000_000_000
LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[cells]\n", "cells.reachable: no [[listen]] takes nodes; add one, or say `reachable = false`"),
        ('[cells]\n[[listen]]\nurl = "tcp://127.0.0.1:0"\nroles = ["client"]', "cells.reachable: no [[listen]]"),
        (LISTEN + "[cells]\nneighbours = 0", "cells.neighbours: Expected `int` >= 1"),
        (LISTEN + "[cells]\nradius = 9", "cells.radius: Expected `int` <= 4"),
        (LISTEN + "[cells]\nslack = 1.0", "cells.slack: Expected `float` > 1.0"),
        (LISTEN + "[cells]\nfriends = 2", "cells.friends: this key does not exist"),
        (LISTEN + '[cells]\nurls = ["udp://127.0.0.1:1"]', "cells.urls[0]: "),
        (LISTEN + '[cells]\nurls = ["tcp://10.0.0.1:1"]', "cells.urls[0]: plain tcp is for loopback only; use tls://"),
        (LISTEN + '[cells]\nurls = ["tls://h:1"]', "cells.urls[0]: tls:// needs a [tls] section"),
        (LISTEN + '[cells]\nurls = ["tls://0.0.0.0:1"]', "cells.urls[0]: tls://0.0.0.0:1 is no address"),
        (
            LISTEN + '[cells]\nreachable = false\nurls = ["tcp://127.0.0.1:1"]',
            "cells.urls: nobody can connect to this node by them",
        ),
        (
            '[cells]\n[[listen]]\nurl = "tls://0.0.0.0:1"',
            "cells.urls: say by which address others connect; this node listens on all addresses",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, "node.toml")
    assert f"node.toml: {reason}" in str(error.value)


def test_only_a_node_with_a_section_names_the_capability() -> None:
    assert "cells" not in parse(LISTEN).capabilities
    assert "cells" in parse(LISTEN + "[cells]\n").capabilities
    assert "cells" in parse("[cells]\nreachable = false\n").capabilities
    assert "cells" not in parse('[node]\nwithout = ["cells"]\n' + LISTEN + "[cells]\n").capabilities


def test_the_section_becomes_settings() -> None:
    settings = settings_of(Cells(neighbours=3, update_s=0.5, reachable=False))
    assert (settings.neighbours, settings.update_ns, settings.reachable) == (3, SECOND // 2, False)
