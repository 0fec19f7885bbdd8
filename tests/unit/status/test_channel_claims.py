"""A channel claims no more security than its transport gives."""

from __future__ import annotations

import pytest

from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.status.topology_checks import problems as topology_problems


def problems(listen: str, data: str, security: int) -> list[str]:
    made = Topology(
        broker=(BrokerSpec(name="leaf", listen=("tls://127.0.0.1:1",)),),
        router=tuple(
            RouterSpec(name=name, cloud="leaf", listen=f"{listen}:{port}") for name, port in (("a", 2), ("b", 3))
        ),
        channel=(ChannelSpec(between=("a", "b"), data=data, security=security),),  # type: ignore[arg-type]
    )
    return [line for line in topology_problems(made) if "security" in line]


@pytest.mark.parametrize(
    ("listen", "data", "most"),
    [("tcp://127.0.0.1", "stream", 0), ("tls://127.0.0.1", "udp", 1), ("tls://127.0.0.1", "stream", 2)],
)
def test_a_claim_ends_where_the_transport_does(listen: str, data: str, most: int) -> None:
    for security in range(3):
        found = problems(listen, data, security)
        assert bool(found) == (security > most)
        assert all(f"security {security}" in line and "gives" in line for line in found)
