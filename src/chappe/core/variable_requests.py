"""Requests of clients about variables: their form, the rights of the client and its limits are checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.commands import Commands
from chappe.core.finder import Finder
from chappe.core.registrations import Registrations
from chappe.core.requests import bad_register, bad_watch
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.variables import Variables
from chappe.machine import Effect, Send
from chappe.security.config import Action
from chappe.security.patterns import variable_address
from chappe.wire import control, management


class VariableRequests:
    """Passes on to `Registrations` what a client may ask for."""

    def __init__(
        self, registrations: Registrations, variables: Variables, commands: Commands, access: Access, limits: Limits,
        finder: Finder,
    ) -> None:  # fmt: skip
        self.finder = finder
        self.limits = limits
        self._registrations = registrations
        self._variables = variables
        self._commands = commands
        self._access = access
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.Register: self._register,
            control.Withdraw: registrations.withdraw,
            control.Watch: self._watch,
            control.Unwatch: registrations.unwatch,
            management.Condense: self._condense,
            management.Uncondense: registrations.uncondense,
            **finder.answers,
        }

    def _register(self, session: Session, request: control.Register, now_ns: int) -> list[Effect]:
        problem = bad_register(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "register")
        if refusal is not None:
            return [refusal]
        if session.usage.variables.count >= self.limits.variables:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.owner != session.port:
                return [self._access.over_limit(session, request, "variables", self.limits.variables)]
        return self._registrations.register(session, request, now_ns)

    def _watch(self, session: Session, request: control.Watch, now_ns: int) -> list[Effect]:
        problem = bad_watch(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "watch")
        if refusal is not None:
            return [refusal]
        if session.subscribed >= self.limits.subscriptions:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.variable.variable_id not in session.watched:
                return [self._access.over_limit(session, request, "subscriptions", self.limits.subscriptions)]
        return self._registrations.watch(session, request, now_ns)

    def _condense(self, session: Session, request: management.Condense, now_ns: int) -> list[Effect]:
        function = request.function
        asked: list[tuple[Action, str]] = [("register", variable_address(function.publisher, function.variable))]
        asked += [("watch", variable_address(each.publisher, each.variable)) for each in function.inputs]
        for action, address in asked:
            refusal = self._access.refusal(session, request, action, address)
            if refusal is not None:
                return [refusal]
        return self._registrations.condense(session, request, now_ns)

    def _refused_variable(
        self, session: Session, request: control.Register | control.Watch, action: Action
    ) -> Send | None:
        """A refusal, free of cost for whoever may do this everywhere: floods of variables are common."""
        if session.internal:
            functions = self._commands.functions
            if functions is not None and functions.may(action, request.publisher, request.variable):
                return None
            reason = f"no function of this node has {request.publisher}/{request.variable}"
            return failed(session.port, request, "denied", reason)
        if action in self._access.everywhere(session):
            return None
        return self._access.refusal(session, request, action, variable_address(request.publisher, request.variable))
