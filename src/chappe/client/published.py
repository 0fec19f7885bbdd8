"""Variables that a client publishes, registered again after a reconnection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from chappe.client._core import ClientCore
from chappe.client._variables import Variable
from chappe.client.derived import Derived, Maximum, Mean, Minimum, RateOfChange, patterns_of
from chappe.client.intervals import interval_ns, rational_rate
from chappe.client.owner import Owner
from chappe.client.requests import LATER_S, Requests, all_within, attempts, is_passing
from chappe.client.structs import TypeName, blocks_for, value_type
from chappe.errors import LinkError
from chappe.wire import control


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How variables are published, as a user says it; ValueError says what contradicts what."""

    rate: float | Fraction | None = None  # a second, at most; None: alerts
    slowest: float | Fraction | None = None  # at least one value in so many seconds
    minimum: float | Fraction | None = None  # of alerts: least seconds between two
    type: TypeName = "float"
    length: int | None = None
    priority: int = 3
    options: int = 0
    derived: Sequence[Derived] = field(default=())

    def __post_init__(self) -> None:
        if self.minimum is not None and self.rate:
            raise ValueError("minimum is for alerts, which have no rate; a periodic variable has its rate")
        if self.slowest is not None and (self.slowest <= 0 or (self.rate and self.slowest * self.rate < 1)):
            raise ValueError(f"slowest is the longest time between two values, not below 1/rate: {self.slowest} s")
        if self.options and self.length is not None:
            raise ValueError("give length= in bytes or options= in blocks of 24, not both")
        if self.derived and value_type(self.type).name not in ("float", "int", "bool"):
            numeric = [each.name for each in self.derived if isinstance(each, Mean | Minimum | Maximum | RateOfChange)]
            if numeric:
                raise ValueError(f"{', '.join(numeric)} can be derived from numbers only: use derived.Custom")

    def variable(self, core: ClientCore, publisher: str, name: str) -> Variable:
        """One variable of this kind, not registered yet."""
        kind = value_type(self.type)
        options = self.options or blocks_for(kind.name, self.length, len(self.derived))
        return Variable(
            core, publisher, name, kind.name, rational_rate(self.rate), self.priority, options,
            slowest_ns=interval_ns(self.slowest), minimum_ns=interval_ns(self.minimum), derived=tuple(self.derived),
            encoder=kind.encode,
        )  # fmt: skip


class Published:
    """Registers and withdraws, and registers again after a reconnection."""

    def __init__(self, owner: Owner, core: ClientCore, requests: Requests) -> None:
        self.variables: dict[Variable, None] = {}  # in order, found at once
        self._named: dict[tuple[str, str], Variable] = {}
        self._owner = owner
        self._core = core
        self._requests = requests

    async def register(self, publisher: str, names: Iterable[str], publication: Publication) -> list[Variable]:
        """Variables of one publisher and kind; RefusedError or DeniedError of the first that the node refuses.

        One that is registered already gets another rate, priority or promise in place and stays the same object.
        """
        patterns_of(publication.derived)
        made = [publication.variable(self._core, publisher, name) for name in names]
        asked = (partial(self._ask_register, variable) for variable in made)
        try:
            await all_within(asked, self._owner.timeout_s, f"register {len(made)} variables of {publisher}")
        except BaseException:
            granted = [variable for variable in made if variable.active]
            await self._withdraw([variable for variable in granted if self._keep(variable, publication) is variable])
            raise
        return [self._enter(self._keep(variable, publication)) for variable in made]

    def _keep(self, made: Variable, publication: Publication) -> Variable:
        """The object that stands for a variable which the node has taken: the one that was there, if there was one."""
        known = self._named.get((made.publisher, made.name))
        if known is None or known.id != made.id or known is made:
            return made
        kind = value_type(publication.type)
        Variable.__init__(
            known, self._core, made.publisher, made.name, made.type, made.rate, made.priority, made.options,
            slowest_ns=made.slowest_ns, minimum_ns=made.minimum_ns, derived=made.derived, encoder=kind.encode,
        )  # fmt: skip
        return known

    def _enter(self, variable: Variable) -> Variable:
        known = self._named.get((variable.publisher, variable.name), variable)
        if known is not variable:  # the node knows it by another number now
            self.variables.pop(known, None)
            known.active = False
        variable.owner = self._owner
        self.variables[variable] = None
        self._named[variable.publisher, variable.name] = variable
        return variable

    def _ask_register(self, variable: Variable) -> asyncio.Future[control.Registered]:
        num, den = variable.rate
        return self._requests.ask(
            lambda request: control.Register(
                id=request, publisher=variable.publisher, variable=variable.name, type=variable.type, rate_num=num,
                rate_den=den, priority=variable.priority, options=variable.options + len(variable.derived),
                slowest_ns=variable.slowest_ns, minimum_ns=variable.minimum_ns, patterns=patterns_of(variable.derived),
            ),
            control.Registered,
            lambda answer: variable.granted(answer.variable_id),
        )  # fmt: skip

    async def withdraw(self, variable: Variable) -> None:
        """Stop publishing it."""
        if variable in self.variables:
            del self.variables[variable]
            self._named.pop((variable.publisher, variable.name), None)
            await self._withdraw([variable])

    async def _withdraw(self, variables: list[Variable]) -> None:
        for variable in variables:
            variable.active = False
        if self._owner.state == "connected":
            asked = (partial(self._ask_withdraw, variable.id) for variable in variables)
            await all_within(asked, self._owner.timeout_s, "withdraw")

    def _ask_withdraw(self, number: int) -> asyncio.Future[control.Done]:
        return self._requests.ask(lambda request: control.Withdraw(id=request, variable_id=number), control.Done)

    def connection_lost(self) -> None:
        """Nothing is published until `register_again`."""
        for variable in self.variables:
            variable.active = False

    async def register_again(self) -> None:
        """Register everything on a new connection, as long as it takes until a broker leads; errors are reported."""
        missing, waits = list(self.variables), False
        while missing:
            asked = (partial(self._ask_register, variable) for variable in missing)
            found = await attempts(asked, self._owner.timeout_s, "register again")
            passing = [
                (variable, error) for variable, error in zip(missing, found, strict=True)
                if is_passing(error) and variable in self.variables and not variable.active
            ]  # fmt: skip
            for error in found:
                if isinstance(error, Exception) and not isinstance(error, LinkError) and not is_passing(error):
                    self._owner.report(error)
            if passing and not waits and isinstance(passing[0][1], Exception):
                self._owner.report(passing[0][1])  # once for all of them: it goes on
            missing, waits = [variable for variable, _ in passing], True
            if missing:
                await asyncio.sleep(LATER_S)
