import asyncio
import socket
import ssl

class TlsTransport(asyncio.Transport):  # in its methods: a compiled class has no Python class for its base
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.BufferedProtocol,
        secured: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        linger_s: float,
    ) -> None: ...
