"""Variables that a client publishes and watches, and their way through reconnections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Protocol

from chappe.client._core import ClientCore
from chappe.client._status import StatusEvent, StatusStream, Watch
from chappe.client._variables import Variable
from chappe.client.intervals import interval_ns, rational_rate
from chappe.client.requests import WINDOW, Requests, all_within, outcomes
from chappe.errors import UnknownError
from chappe.wire import control

AGAIN_WAIT_S = 60.0  # how long the node keeps a watch for a variable whose publisher has not come back yet


class Owner(Protocol):
    """The client whose values they are."""

    timeout_s: float

    @property
    def state(self) -> str: ...
    def subscription_has_room(self, queue: StatusStream) -> None: ...


class Values:
    """Registers, watches, and does both again after a reconnection."""

    def __init__(self, owner: Owner, core: ClientCore, requests: Requests) -> None:
        self.variables: dict[Variable, None] = {}  # in order, found at once
        self.watches: dict[Watch, None] = {}
        self._owner = owner
        self._core = core
        self._requests = requests

    # --- published

    async def register(
        self,
        publisher: str,
        names: Iterable[str],
        rate: float | Fraction | None,
        kind: str,
        priority: int,
        options: int,
    ) -> list[Variable]:
        """Variables of one publisher, type and rate; RefusedError or DeniedError of the first that the node refuses."""
        exact = rational_rate(rate)
        made = [Variable(self._core, publisher, name, kind, exact, priority, options) for name in names]
        asked = (partial(self._ask_register, variable) for variable in made)
        try:
            await all_within(asked, self._owner.timeout_s, f"register {len(made)} variables of {publisher}")
        except BaseException:
            await self._withdraw([variable for variable in made if variable.active])
            raise
        for variable in made:
            variable.owner = self._owner
        self.variables.update(dict.fromkeys(made))
        return made

    def _ask_register(self, variable: Variable) -> asyncio.Future[control.Registered]:
        num, den = variable.rate
        return self._requests.ask(
            lambda request: control.Register(
                id=request, publisher=variable.publisher, variable=variable.name, type=variable.type, rate_num=num,
                rate_den=den, priority=variable.priority, options=variable.options,
            ),
            control.Registered,
            lambda answer: variable.granted(answer.variable_id),
        )  # fmt: skip

    async def withdraw(self, variable: Variable) -> None:
        """Stop publishing it."""
        if variable in self.variables:
            del self.variables[variable]
            await self._withdraw([variable])

    async def _withdraw(self, variables: list[Variable]) -> None:
        for variable in variables:
            variable.active = False
        if self._owner.state == "connected":
            asked = (partial(self._ask_withdraw, variable.id) for variable in variables)
            await all_within(asked, self._owner.timeout_s, "withdraw")

    def _ask_withdraw(self, number: int) -> asyncio.Future[control.Done]:
        return self._requests.ask(lambda request: control.Withdraw(id=request, variable_id=number), control.Done)

    # --- watched

    async def watch(
        self,
        variables: Sequence[tuple[str, str]],
        interval: float | Fraction | None,
        callback: Callable[[StatusEvent], None] | None,
        stream: StatusStream,
        wait_s: float,
    ) -> None:
        """Watch the variables at one interval, all in one stream; nothing is watched if one of them is refused."""
        every = interval_ns(interval)
        stream.owner = self._owner
        stream.loop = asyncio.get_running_loop()
        stream.before_wait = self._core.write_now
        watches = [Watch(*names, interval_ns=every, callback=callback, stream=stream) for names in variables]
        for watch in watches:
            watch.owner = self._owner
        asked = (partial(self._ask_watch, watch, wait_s) for watch in watches)
        named = "/".join(variables[0]) + (f" and {len(watches) - 1} more" if len(watches) > 1 else "")
        try:
            await all_within(asked, self._owner.timeout_s + wait_s, f"watch {named}")
        except BaseException:
            await self._forget([watch for watch in watches if watch.active])
            raise
        self.watches.update(dict.fromkeys(watches))
        self._refine(watches)

    def _ask_watch(self, watch: Watch, wait_s: float) -> asyncio.Future[control.Watching]:
        def granted(answer: control.Watching) -> None:
            watch.granted(answer.variable_id, answer.type, answer.rate_num, answer.rate_den, answer.every)
            self._core.watches.add([watch])

        return self._requests.ask(
            lambda request: control.Watch(
                id=request, publisher=watch.publisher, variable=watch.variable, interval_ns=watch.interval_ns,
                wait_ns=round(wait_s * 1e9),
            ),
            control.Watching,
            granted,
        )  # fmt: skip

    def _refine(self, changed: Iterable[Watch]) -> None:
        """The node keeps one interval for each variable and client: ask for the finest where it got a coarser one."""
        for number in {watch.variable_id for watch in changed if watch.active}:
            same = self._core.watches.of(number)
            if len({watch.interval_ns for watch in same}) > 1:
                asked = self._ask_again(min(same, key=lambda each: each.interval_ns))
                asked.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _ask_again(self, watch: Watch) -> asyncio.Future[control.Watching]:
        return self._requests.ask(
            lambda request: control.Watch(
                id=request, publisher=watch.publisher, variable=watch.variable, interval_ns=watch.interval_ns
            ),
            control.Watching,
        )

    async def unwatch(self, watched: Watch | StatusStream) -> None:
        """Stop; iterators end after what is queued."""
        stream = watched if isinstance(watched, StatusStream) else watched.stream
        chosen = [watched] if isinstance(watched, Watch) else stream.watches
        leaving = [watch for watch in chosen if watch in self.watches]
        for watch in leaving:
            del self.watches[watch]
        if isinstance(watched, StatusStream) or len(stream.watches) == 1:
            stream.end()
            self._owner.subscription_has_room(stream)
        await self._forget(leaving)

    async def _forget(self, watches: list[Watch]) -> None:
        freed = self._core.watches.remove(watches)
        for watch in watches:
            watch.active = False
        if self._owner.state == "connected":
            asked = (partial(self._ask_unwatch, number) for number in freed)
            await all_within(asked, self._owner.timeout_s, "unwatch")

    def _ask_unwatch(self, number: int) -> asyncio.Future[control.Done]:
        return self._requests.ask(lambda request: control.Unwatch(id=request, variable_id=number), control.Done)

    # --- connections

    def lost(self) -> None:
        """Nothing is published or watched until `again`."""
        for variable in self.variables:
            variable.active = False
        for watch in self.watches:
            watch.active = False
        self._core.watches.clear()

    async def register_again(self) -> list[BaseException | None]:
        """Register everything on a new connection; the error of each variable, or None."""
        asked = (partial(self._ask_register, variable) for variable in list(self.variables))
        return await outcomes(asked, self._owner.timeout_s, "register again")

    async def watch_again(self) -> None:
        """Watch everything on a new connection, for as long as it takes the publishers to come back."""
        missing, wait_s = list(self.watches), 0.0
        while missing:
            # Those that the node keeps for a publisher to come must not hold up the others: all are asked at once.
            window = WINDOW if wait_s == 0 else 2 * len(missing)
            asked = (partial(self._ask_watch, watch, wait_s) for watch in missing)
            found = await outcomes(asked, self._owner.timeout_s + wait_s, "watch again", window=window)
            for error in found:
                if error is not None and not isinstance(error, UnknownError):
                    raise error
            unknown = [watch for watch, error in zip(missing, found, strict=True) if error is not None]
            missing = [watch for watch in unknown if watch in self.watches]
            wait_s = AGAIN_WAIT_S
        self._refine(self.watches)
