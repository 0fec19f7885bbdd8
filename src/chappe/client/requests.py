"""Requests to the node and their answers, matched by id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from chappe.client.quality import granted_by_mode
from chappe.errors import ChappeError, DeniedError, QosError, RefusedError, TimeoutExpired, UnknownError
from chappe.wire.constants import ALL_MODES
from chappe.wire.control import Answer, Command, Failed, Message, Request, encode

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)
Outcome = TypeVar("Outcome")
Question = Callable[[], asyncio.Future[Any]]  # asks, and gives the answer to come
LATER_S = 0.5  # until what may succeed a little later is asked again
WINDOW = 4096  # requests without an answer; the node ends connections that let answers pile up


def refusal(failed: Failed) -> RefusedError:
    """The error that a `Failed` means; its text is the node's reason."""
    match failed.code:
        case "denied":
            return DeniedError(failed.reason)
        case "unknown":
            return UnknownError(failed.reason)
        case "capacity":
            return QosError(failed.reason, granted_by_mode(failed.best, ALL_MODES))
    return RefusedError(f"{failed.reason} ({failed.code})", failed.code)


def is_passing(error: BaseException | None) -> bool:
    """Whether the same request may succeed a little later: nobody leads at the moment, or no answer came in time."""
    return isinstance(error, TimeoutExpired) or (isinstance(error, RefusedError) and error.code == "unavailable")


class Requests:
    """Sends requests through `send(payload)`; a lost connection fails those without an answer."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._last = 0
        self._pending: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None] | None]] = {}

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    def ask(
        self,
        make: Callable[[int], Request | Command],
        kind: type[AnyAnswer],
        applied: Callable[[AnyAnswer], None] | None = None,
    ) -> asyncio.Future[AnyAnswer]:
        """Send `make(id)`. `applied` is called with the answer before anything that the node sent after it is read."""
        self._last += 1
        future: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self._pending[self._last] = future, applied
        future.add_done_callback(lambda _, request=self._last: self._pending.pop(request, None))  # type: ignore[misc]
        self._send(encode(make(self._last)))
        return future

    def resolve(self, message: Message) -> bool:
        """Give an answer to whoever asked; False if nobody did."""
        if not isinstance(message, Answer) or message.id not in self._pending:
            return False
        future, applied = self._pending.pop(message.id)
        if future.done():
            return True
        if isinstance(message, Failed):
            future.set_exception(refusal(message))
            return True
        try:
            if applied is not None:
                applied(message)
        except (ChappeError, ValueError) as error:
            future.set_exception(error)
        else:
            future.set_result(message)
        return True

    def fail(self, error: Exception) -> None:
        """Nobody will answer: the connection is gone."""
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller that was cancelled meanwhile never looks at it


async def within(future: asyncio.Future[Outcome], timeout_s: float, what: str) -> Outcome:
    """The answer; TimeoutExpired names what was asked for."""
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        raise TimeoutExpired(f"{what}: no answer within {timeout_s:g} s") from None


async def all_within(questions: Iterable[Question], timeout_s: float, what: str) -> None:
    """Every answer; the first error if there is one, after all that was asked is answered."""
    for error in await outcomes(questions, timeout_s, what, stop=True):
        if error is not None:
            raise error


async def attempts(
    questions: Iterable[Question], timeout_s: float, what: str, *, window: int = WINDOW
) -> list[BaseException | None]:
    """As `outcomes`; without an answer in time that is the error of each, and some may have been carried out."""
    asked = list(questions)
    try:
        return await outcomes(asked, timeout_s, what, window=window)
    except TimeoutExpired as error:
        return [error] * len(asked)


async def outcomes(
    questions: Iterable[Question], timeout_s: float, what: str, *, stop: bool = False, window: int = WINDOW
) -> list[BaseException | None]:
    """Ask all of them, at most `window` at a time; the error of each or None. With `stop` an error ends the asking.

    Two batches are under way at a time, so that the node always has something to do; `timeout_s` is for each batch.
    """
    waiting = iter(questions)
    ahead: list[asyncio.Future[Any]] = []
    found: list[BaseException | None] = []
    failed = False
    while True:
        behind, ahead = ahead, [] if failed else [ask() for ask in islice(waiting, window // 2)]
        if behind:
            await within(asyncio.ensure_future(asyncio.wait(behind)), timeout_s, what)
            found += [future.exception() for future in behind]
            failed = failed or (stop and any(found[-len(behind) :]))
        elif not ahead:
            return found
