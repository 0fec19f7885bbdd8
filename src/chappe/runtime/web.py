"""The pages of a node on a thread of their own; the loop that forwards only takes the snapshots."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CONTENT_TYPE_LATEST

from chappe.errors import ConfigError, LinkError
from chappe.links.address import parse
from chappe.security.pages import PageAccess

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = structlog.get_logger(__name__)

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
CERTIFICATE = "chappe.certificate"  # in the environment of a request: whether its viewer has shown one
MOST = 64  # connections served at once
WORDS = {
    200: "200 OK", 400: "400 Bad Request", 401: "401 Unauthorized", 403: "403 Forbidden", 404: "404 Not Found",
    503: "503 Service Unavailable",
}  # fmt: skip


class Web:
    """Serves its pages on `address` until `close`.

    `metrics()` gives the text of /metrics, `health()` and `ready()` a status and a line, `pages` what else there is by
    path. All but /health, /ready and the `public` ones are for viewers whom `access` admits. They run on a server
    thread and may raise TimeoutError when the loop does not answer.
    """

    def __init__(
        self, access: PageAccess, metrics: Callable[[], bytes], health: Callable[[], Answer],
        ready: Callable[[], Answer], pages: Mapping[str, Page] | None = None, public: Collection[str] = (),
    ) -> None:  # fmt: skip
        place = parse(f"tcp://{access.address}")
        self._access = access
        self._metrics = metrics
        self._lines = {"/health": health, "/ready": ready}
        self._pages = dict(pages or {})
        self._public = {*self._lines, *public}
        context = access.context()
        if access.token:
            access.secret()  # a file that is wrong is found now
        try:
            self._server = make_server(place.host, place.port, self._respond, _Server, _Quiet)
        except OSError as error:
            reason = error.strerror or error
            raise LinkError(f"metrics.address: can not listen on {access.address}: {reason}") from None
        self._server.context = context
        self.port = int(self._server.server_port)
        self.url = f"http{'s' if context else ''}://{access.address.rpartition(':')[0]}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="chappe-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; waits for the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = dict(parse_qsl(str(environ.get("QUERY_STRING", ""))[:QUERY_LIMIT]))
        path, more = str(environ.get("PATH_INFO", "")), list(SAFE)
        if path in self._public or self._admits(environ):
            status, kind, body = self._page(path, asked)
        else:
            status, kind, body = 401, TEXT, b"prove who you are: bring the token of this page\n"
            more.append(("WWW-Authenticate", 'Basic realm="chappe", charset="UTF-8"'))
        start_response(WORDS[status], [("Content-Type", kind), ("Content-Length", str(len(body))), *more])
        return [body]

    def _admits(self, environ: WSGIEnvironment) -> bool:
        certificate = bool(environ.get(CERTIFICATE))
        try:
            return self._access.admits(str(environ.get("HTTP_AUTHORIZATION", "")), certificate)
        except ConfigError as error:
            log.error("the token of the page cannot be read: nobody is let in", reason=str(error))
            return False

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
    """A thread for each of at most MOST connections; TLS handshakes are done there, too."""

    daemon_threads = True
    context: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.BoundedSemaphore(MOST)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self.context is not None:
                request.settimeout(_Quiet.timeout)
                request = self.context.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:  # ssl.SSLError is one: no handshake, no page
            self.shutdown_request(request)
        finally:
            self._room.release()


class _Quiet(WSGIRequestHandler):
    timeout = 10  # of a client that connects and says nothing

    def get_environ(self) -> dict[str, Any]:
        """Of a request; with what its connection has shown."""
        shown = isinstance(self.connection, ssl.SSLSocket) and bool(self.connection.getpeercert(True))
        return {**super().get_environ(), CERTIFICATE: shown}

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""
