"""A plain HTTP proxy on real sockets: CONNECT, with nobody, Basic or Digest at the door; it reads RFC 7616 itself."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}


@dataclass
class ProxyServer:
    """`scheme`: none, basic or digest; `targets` lists where tunnels were opened to."""

    scheme: str = "none"
    algorithm: str = "SHA-256"
    user: str = "ada"
    password: str = "l:ove lace"
    answer: bytes = b""  # said instead of a tunnel
    forget_nonces: int = 0  # so many answers are refused as stale
    targets: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    passed: int = 0  # bytes to the targets
    clear: bytearray = field(default_factory=bytearray)  # what the proxy could read on the way there
    _nonces: set[str] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        if self.answer:
            writer.write(self.answer)
            await writer.drain()
            await reader.read()
            return
        found = re.search(r"^proxy-authorization: (.*)\r$", head, re.IGNORECASE | re.MULTILINE)
        given = found[1] if found else ""
        self.authorizations.append(given)
        if method != "CONNECT":
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        elif not self._allowed(given, target):
            body = b"who are you?"
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n" + self._challenge(bool(given)))
            writer.write(b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        else:
            await self._tunnel(target, reader, writer)
        await writer.drain()

    def _allowed(self, given: str, target: str) -> bool:
        if self.scheme == "none":
            return True
        if self.scheme == "basic":
            wanted = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            return given == f"Basic {wanted}"
        parts = dict(re.findall(r'(\w+)="?([^",]*)"?', given.removeprefix("Digest ")))
        if parts.get("nonce") not in self._nonces or parts.get("uri") != target:
            return False
        self._nonces.discard(parts["nonce"])
        if self.forget_nonces:
            self.forget_nonces -= 1
            return False

        def h(text: str) -> str:
            return HASHES[self.algorithm](text.encode()).hexdigest()

        secret, request = h(f"{self.user}:the door:{self.password}"), h(f"CONNECT:{target}")
        wanted = h(f"{secret}:{parts['nonce']}:{parts['nc']}:{parts['cnonce']}:auth:{request}")
        return parts.get("username") == self.user and parts.get("response") == wanted

    def _challenge(self, stale: bool) -> bytes:
        if self.scheme == "basic":
            return b'Proxy-Authenticate: Basic realm="the door"\r\n'
        nonce = secrets.token_hex(8)
        self._nonces.add(nonce)
        again = ", stale=true" if stale and self.forget_nonces >= 0 else ""
        weak = 'Proxy-Authenticate: Basic realm="the door"\r\n'
        strong = f'Digest realm="the door", qop="auth-int, auth", algorithm={self.algorithm}, nonce="{nonce}"{again}'
        return f"{weak}Proxy-Authenticate: {strong}\r\n".encode()

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = target.rsplit(":", 1)
        self.targets.append(target)
        try:
            near, far = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        self._writers.add(far)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = asyncio.create_task(self._pass(near, writer, False))
        try:
            await self._pass(reader, far, True)
        finally:
            far.close()
            self._writers.discard(far)
            await asyncio.gather(back, return_exceptions=True)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, out: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65_536):
                if out:
                    self.passed += len(piece)
                    self.clear += piece
                sink.write(piece)
                await sink.drain()
        with contextlib.suppress(OSError):
            sink.close()

    def cut(self) -> None:
        """End every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()


@contextlib.asynccontextmanager
async def proxy_server(**settings: object) -> AsyncIterator[ProxyServer]:
    """A proxy on a free port of the loopback interface."""
    proxy = ProxyServer(**settings)  # type: ignore[arg-type]
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await proxy.serve(reader, writer)
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
