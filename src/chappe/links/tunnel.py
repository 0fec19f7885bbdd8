"""A tunnel through an HTTP proxy by CONNECT (MR-031, MR-032), without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import h11

from chappe.errors import LinkError, RefusedError
from chappe.links.address import Address
from chappe.links.authentication import answer, challenges
from chappe.links.proxy import Proxy

HEAD_LIMIT = 16_384  # of the proxy's answer
ATTEMPTS = 3  # without credentials, with them, and once more for a nonce that was too old


@dataclass(frozen=True, slots=True)
class Opened:
    """The tunnel stands; `rest` came through it already."""

    rest: bytes


@dataclass(frozen=True, slots=True)
class Again:
    """Connect to the proxy anew and send the next `request`: it carries credentials."""


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no way through this proxy."""

    error: Exception


class Tunnel:
    """Asks a proxy for a tunnel; each attempt is a connection of its own, `request` first, then `receive`.

    Credentials are sent only after the proxy asked for them, Digest before Basic where it takes both.
    """

    def __init__(self, proxy: Proxy, address: Address, nonce: Callable[[], str]) -> None:
        """`nonce` gives fresh random text."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._target = f"{host}:{address.port}"
        self._proxy = proxy
        self._nonce = nonce
        self._credentials = ""
        self._scheme = ""
        self._attempts = 0
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)

    def request(self) -> bytes:
        """The bytes that open an attempt."""
        self._attempts += 1
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        headers = [("Host", self._target), ("User-Agent", "chappe")]
        if self._credentials:
            headers.append(("Proxy-Authorization", self._credentials))
        request = h11.Request(method="CONNECT", target=self._target, headers=headers)
        return (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def receive(self, data: bytes) -> Opened | Again | Failed | None:
        """Take bytes of the proxy, empty at its end; None if the answer is not complete."""
        if not data:
            return Failed(LinkError(f"proxy {self._proxy} closed the connection without an answer"))
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            return Failed(LinkError(f"proxy {self._proxy} does not speak HTTP: {error}"))
        if isinstance(event, h11.Response):
            return self._answered(event)
        return None

    def _answered(self, response: h11.Response) -> Opened | Again | Failed:
        if 200 <= response.status_code < 300:
            return Opened(self._http.trailing_data[0])
        reason = response.reason.decode("ascii", "replace").strip()
        said = f"{response.status_code} {reason}".rstrip()
        if response.status_code == 407:
            return self._challenged(response, said)
        return Failed(LinkError(f"proxy {self._proxy} gives no way to {self._target}: {said}"))

    def _challenged(self, response: h11.Response, said: str) -> Again | Failed:
        if not self._proxy.user:
            hint = "write user and password in its url"
            return Failed(RefusedError(f"proxy {self._proxy} wants to know who asks ({said}); {hint}"))
        fields = [value.decode("latin-1") for name, value in response.headers if name == b"proxy-authenticate"]
        found = [challenge for value in fields for challenge in challenges(value)]
        stale = any(challenge.parameters.get("stale", "").lower() == "true" for challenge in found)
        if self._credentials and not (stale and self._scheme == "Digest" and self._attempts < ATTEMPTS):
            return Failed(RefusedError(f"proxy {self._proxy} refuses user {self._proxy.user!r} ({said})"))
        made = answer(found, self._proxy.user, self._proxy.password, "CONNECT", self._target, self._nonce)
        if made is None:
            offered = ", ".join(sorted({challenge.scheme for challenge in found})) or "nothing"
            return Failed(RefusedError(f"proxy {self._proxy} takes {offered}; Chappe knows Basic and Digest"))
        self._scheme, self._credentials = made
        return Again()
