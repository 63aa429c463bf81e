"""Real servers on loopback that take messages: one for webhooks, one for mail."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """A web server that keeps what is posted. `status`: its answer; `gate`: each request waits until it is set."""

    url: str = ""
    status: int = 200
    posted: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)  # path, headers, document
    gate: threading.Event = field(default_factory=threading.Event)

    def documents(self) -> list[Any]:
        return [document for _, _, document in self.posted]

    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for _, headers, _ in self.posted]


@contextmanager
def webhook() -> Iterator[Webhook]:
    found = Webhook()
    found.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.gate.wait(30)
            document = json.loads(body) if body.startswith(b"{") else body.decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            if found.status < 300:
                found.posted.append((self.path, headers, document))
            with suppress(OSError):  # whoever asked has gone
                self.send_response(found.status)
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    found.url = f"127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class MailServer:
    """An SMTP server (RFC 5321, without extensions) that keeps what it takes. `refuses`: it takes nothing."""

    port: int = 0
    refuses: bool = False
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run a mail server in a thread with a loop of its own."""
    found, loop = MailServer(), asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())
            await writer.drain()

        await say("220 mail.test ESMTP")
        while line := (await reader.readline()).decode().strip():
            verb = line.split(" ")[0].upper()
            if verb == "QUIT":
                await say("221 bye")
                break
            if verb == "DATA":
                await say("354 go on")
                lines = []
                while (part := await reader.readline()) not in (b".\r\n", b""):
                    lines.append(part[1:] if part.startswith(b"..") else part)
                mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                assert isinstance(mail, EmailMessage)
                found.mails.append(mail)
            elif verb == "RCPT":
                if found.refuses:
                    await say("550 no such user")
                    continue
                found.recipients.append(line.partition(":")[2].strip("<>"))
            await say("250 ok")
        writer.close()

    started = threading.Event()

    async def run(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found.port = server.sockets[0].getsockname()[1]
        started.set()
        async with server:
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(stop),))
    thread.start()
    assert started.wait(10)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
