"""`WebServer`: uvicorn on a thread of its own.

The loop talks to hundreds of BMCs on its event loop. A list of ten thousand nodes takes 0.1 s to write, and a client
may take its time to read it: neither delays a call to a BMC here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from reconciler.drivers.web.access import Access, WebOptions
from reconciler.drivers.web.application import Served, application
from reconciler.drivers.web.stream import Bell
from reconciler.model.errors import UsageError

_SHUTDOWN_S: Final = 1
_CLOSING_S: Final = 5.0
_AT_ONCE: Final = 256  # connections and requests; probes need one of them
_BACKLOG: Final = 128
_FIRST_S: Final = 10.0  # until the first request of a connection: those that send none would keep the probes out
_RENEW_S: Final = 60.0  # between two looks at the files of the certificate
_LOG: Final = logging.getLogger("reconciler")


class _Protocol(H11Protocol):
    """HTTP on one connection, which is closed when no whole request has come in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.loop.call_later(_FIRST_S, self._close_unused)

    def _close_unused(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.began = threading.Event()  # it listens, or never will

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.began.set()


class WebServer:
    """The server of one process."""

    def __init__(self, served: Served, access: Access) -> None:
        self._options = access.options
        self.bell = Bell(served.view)
        self._app = application(served, access, self.bell)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._tls: ssl.SSLContext | None = None

    async def start(self) -> str:
        """Start to listen; return the URL. Raise UsageError when the address or a certificate can't be used."""
        options = self._options
        listener = _listener(options)
        config = uvicorn.Config(
            self._app, http=_Protocol, ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="warning",
            access_log=False, server_header=False, proxy_headers=False, limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=_SHUTDOWN_S, ssl_certfile=options.tls_cert, ssl_keyfile=options.tls_key,
            ssl_ca_certs=None if options.tls_client_ca is None else str(options.tls_client_ca),
            ssl_cert_reqs=ssl.CERT_NONE if options.tls_client_ca is None else ssl.CERT_REQUIRED,
        )  # fmt: skip
        try:
            config.load()
        except OSError as error:  # ssl.SSLError is one
            listener.close()
            raise UsageError(f"can't serve TLS with {options.tls_cert}: {error.strerror or error}") from error
        self._tls = config.ssl
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, args=(self._server, listener), name="web", daemon=True)
        self._thread.start()
        await asyncio.to_thread(self._server.began.wait)
        if self._failed is not None:
            raise UsageError(f"can't serve on {options.listen}: {self._failed}")
        return _url(options, listener)

    async def close(self) -> None:
        """End all streams and connections."""
        if self._server is None or self._thread is None:
            return
        self.bell.close()  # first: the server would wait for its streams
        self._server.should_exit = True
        await asyncio.to_thread(self._thread.join, _CLOSING_S)
        if (path := self._options.unix) is not None:
            path.unlink(missing_ok=True)
        self._server = self._thread = None

    def _run(self, server: _Server, listener: socket.socket) -> None:
        async def serve() -> None:
            beside = [asyncio.create_task(work) for work in (self.bell.follow(), self._renew())]
            try:
                await server.serve([listener])
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)

        try:
            asyncio.run(serve())
        except (OSError, SystemExit) as error:
            self._failed = error
        finally:
            server.began.set()

    async def _renew(self) -> None:
        """Give new connections the certificate that its files have now. One that can't be used leaves that of before.

        It is done where connections are accepted: OpenSSL's contexts may not be changed by another thread.
        """
        cert, key = self._options.tls_cert, self._options.tls_key
        if self._tls is None or cert is None:
            return
        before = _changed_at(cert, key)
        while True:
            await asyncio.sleep(_RENEW_S)
            now = _changed_at(cert, key)
            if now == before or None in now:
                continue
            try:
                self._tls.load_cert_chain(cert, key)
            except OSError as error:  # ssl.SSLError is one; the key may come a moment after its certificate
                _LOG.warning("can't serve TLS with the new %s: %s; that of before stays", cert, error.strerror or error)
            else:
                before = now


def _changed_at(*files: Path | None) -> list[int | None]:
    """Return when each file was changed last, behind links, too; None for one that is not there."""
    found: list[int | None] = []
    for file in files:
        try:
            found.append(None if file is None else file.stat().st_mtime_ns)
        except OSError:
            found.append(None)
    return found


def _listener(options: WebOptions) -> socket.socket:
    """Return a socket that listens. Raise UsageError."""
    try:
        if options.unix is not None:
            return _unix(options.unix)
        host, port = options.address
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"can't serve the status on {options.listen}: {error.strerror or error}") from error


def _unix(path: Path) -> socket.socket:
    """Return a socket that its own user and group may connect to. One that a dead process left is replaced."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        path.chmod(0o660)  # before it listens: nobody could connect until then
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _url(options: WebOptions, listener: socket.socket) -> str:
    if options.unix is not None:
        return options.listen
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'http' if options.tls_cert is None else 'https'}://{name}:{port}"
