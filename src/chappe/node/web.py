"""The pages of a node on a thread of their own; the loop that forwards only takes the snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST

from chappe.errors import LinkError
from chappe.links.address import parse

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
Answer = tuple[int, str]
Page = Callable[[dict[str, str]], tuple[int, str, bytes]]  # what was asked after `?` -> status, content type, body
QUERY_LIMIT = 1024
SAFE = (  # names of links come from other nodes: pages run no script and reach no other host
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)
WORDS = {200: "200 OK", 400: "400 Bad Request", 404: "404 Not Found", 503: "503 Service Unavailable"}


class Web:
    """Serves its pages on `address` until `close`.

    `metrics()` gives the text of /metrics, `health()` and `ready()` a status and a line, `pages` what else there is by
    path; all run on a server thread and may raise TimeoutError when the loop does not answer.
    """

    def __init__(
        self, address: str, metrics: Callable[[], bytes], health: Callable[[], Answer], ready: Callable[[], Answer],
        pages: Mapping[str, Page] | None = None,
    ) -> None:  # fmt: skip
        place = parse(f"tcp://{address}")
        self._metrics = metrics
        self._lines = {"/health": health, "/ready": ready}
        self._pages = dict(pages or {})
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
        asked = dict(parse_qsl(str(environ.get("QUERY_STRING", ""))[:QUERY_LIMIT]))
        status, kind, body = self._page(str(environ.get("PATH_INFO", "")), asked)
        start_response(WORDS[status], [("Content-Type", kind), ("Content-Length", str(len(body))), *SAFE])
        return [body]

    def _page(self, path: str, asked: dict[str, str]) -> tuple[int, str, bytes]:
        try:
            if path == "/metrics":
                return 200, CONTENT_TYPE_LATEST, self._metrics()
            if path in self._pages:
                return self._pages[path](asked)
            line_of = self._lines.get(path)
            if line_of is None:
                known = ", ".join(sorted({"/metrics", *self._lines, *self._pages}))
                return 404, TEXT, f"there are {known}\n".encode()
            status, line = line_of()
            return status, TEXT, f"{line}\n".encode()
        except TimeoutError:
            return 503, TEXT, b"the loop does not answer\n"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # of a client that connects and says nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""
