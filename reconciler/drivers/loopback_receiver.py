"""A web server on loopback that takes what is posted to it, for trying what sends: it runs in a thread of its own.

So it answers also while who sends holds up the event loop.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote_plus

_POLL_S: Final = 0.05
_LARGEST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Received:
    """A request. Names of `headers` are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """Return the body's JSON. ValueError: it says that it is JSON, and is not. None: it does not say so."""
        return json.loads(self.body) if "json" in self.headers.get("content-type", "") else None

    def has(self, text: str) -> bool:
        """Say whether it has a text, in whatever way it was escaped: in JSON, HTML or XML, a form, or a header."""
        raw = self.body.decode(errors="replace")
        with suppress(ValueError):
            raw += "\n" + "\n".join(_strings(json.loads(self.body)))
        places = [raw, *self.headers.values(), self.path]
        return any(text in each for one in places for each in (one, html.unescape(one), unquote_plus(one)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(one)


@dataclass
class Receiver:
    """`status`: of its answers. `open`: each request waits until it is set, but not for longer than `hold_s`."""

    address: str
    hold_s: float
    status: int = 204
    received: list[Received] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiving(hold_s: float) -> Iterator[Receiver]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    found = Receiver(f"127.0.0.1:{server.server_port}", hold_s)
    found.open.set()
    server.RequestHandlerClass = _handler(found)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.open.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def take(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _LARGEST))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(self.path, headers, body))
            receiver.open.wait(receiver.hold_s)
            with suppress(OSError):  # whoever asked has gone
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    for method in ("GET", "POST", "PUT", "PATCH"):
        setattr(Handler, f"do_{method}", Handler.take)  # the library's way to say what is answered
    return Handler
