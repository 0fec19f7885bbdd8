"""/metrics, /health and /ready on a thread of their own; the loop that forwards only takes the snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST

from chappe.errors import LinkError
from chappe.links.address import parse

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

TEXT = "text/plain; charset=utf-8"
Answer = tuple[int, str]


class Web:
    """Serves three pages on `address` until `close`.

    `metrics()` gives the text of /metrics, `health()` and `ready()` a status and a line; all run on a server thread and
    may raise TimeoutError when the loop does not answer.
    """

    def __init__(
        self, address: str, metrics: Callable[[], bytes], health: Callable[[], Answer], ready: Callable[[], Answer]
    ) -> None:
        place = parse(f"tcp://{address}")
        self._metrics = metrics
        self._pages = {"/health": health, "/ready": ready}
        try:
            self._server = make_server(place.host, place.port, self._respond, _Server, _Quiet)
        except OSError as error:
            raise LinkError(f"metrics.address: can not listen on {address}: {error.strerror or error}") from None
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="chappe-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; waits for the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = self._page(str(environ.get("PATH_INFO", "")))
        words = {200: "200 OK", 404: "404 Not Found", 503: "503 Service Unavailable"}
        start_response(words[status], [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    def _page(self, path: str) -> tuple[int, str, bytes]:
        try:
            if path == "/metrics":
                return 200, CONTENT_TYPE_LATEST, self._metrics()
            page = self._pages.get(path)
            if page is None:
                return 404, TEXT, b"there are /metrics, /health and /ready\n"
            status, line = page()
            return status, TEXT, f"{line}\n".encode()
        except TimeoutError:
            return 503, TEXT, b"the loop does not answer\n"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # of a client that connects and says nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""
