"""What a client had is asked for again after a lost connection, also when no broker leads at that moment."""

from __future__ import annotations

import chappe
from chappe.errors import RefusedError
from chappe.wire import control
from tests.support.nodes import eventually
from tests.support.scriptednode import ScriptedNode

NOBODY = "no broker of cloud leads; n1 forwards on, ask again later"


class Cloud:
    """A node whose broker is away for the first requests after the connection was lost."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.lost = False

    def __call__(self, request: control.Request) -> control.Message | None:
        if isinstance(request, control.Register | control.Watch) and self.lost and self.away:
            self.away -= 1
            return control.Failed(id=request.id, reason=NOBODY, code="unavailable")
        if isinstance(request, control.Register):
            return control.Registered(id=request.id, variable_id=7)
        if isinstance(request, control.Watch):
            return control.Watching(id=request.id, variable_id=9, type="float", rate_num=1, rate_den=10**9, every=1)
        return None


async def test_a_variable_is_registered_again_when_a_broker_leads_again() -> None:
    cloud = Cloud(away=2)
    async with ScriptedNode.serving(cloud) as node, chappe.connect(node.url) as client:
        errors: list[Exception] = []
        client.on_error = errors.append
        variable = await client.register("plant", "power", rate=1)
        cloud.lost = True
        node.cut()
        await eventually(lambda: len(node.asked(control.Register)) == 4)
        await eventually(lambda: variable.active)
        assert [str(error) for error in errors] == [f"{NOBODY} (unavailable)"], "once: it goes on"


async def test_a_variable_is_watched_again_when_a_broker_leads_again() -> None:
    cloud = Cloud(away=2)
    async with ScriptedNode.serving(cloud) as node, chappe.connect(node.url) as client:
        errors: list[Exception] = []
        client.on_error = errors.append
        watch = await client.watch("plant", "power")
        cloud.lost = True
        node.cut()
        await eventually(lambda: len(node.asked(control.Watch)) == 4)
        await eventually(lambda: watch.active)
        assert [type(error) for error in errors] == [RefusedError]
