"""Checks of a server of install documents against the installer contract: the packaged one, or an extension's.

A document for a machine that there is not is published under a token of the suite's own, asked for as an installer
asks, and withdrawn. No machine is given its address, so nothing is installed.
"""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import asyncssh

from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    AttemptCredential,
    InstallDocument,
    InstallImage,
    InstallPhase,
    MachineIdentity,
    RootDisk,
    load_contract,
)
from reconciler.model.ports import Installer

NODE: Final = "conformance"
_WAIT: Final = aiohttp.ClientTimeout(total=30)
_WHOLE: Final = aiohttp.ClientTimeout(total=300)  # for a medium
_LONGEST: Final = 1_048_576  # bytes of an answer that are read
_LARGEST: Final = 8 * 1024**3  # bytes of a medium that are read
_PLACE: Final = 65_536  # bytes at the end of a medium that are asked for


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: Any


@dataclass
class Bench:
    """The server. `trust`: who signs its certificate."""

    installer: Installer
    trust: ssl.SSLContext
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    base: str = ""

    def document(self) -> InstallDocument:
        """Return a document that no machine takes: its serial number is nobody's."""
        return InstallDocument(
            node=NODE,
            hostname=NODE,
            nonce=self.token,
            machine=MachineIdentity(serial=f"conformance-{self.token}", uuid=None),
            image=InstallImage(name=NODE, version="1", url="https://192.0.2.1/image.raw.zst", sha256="0" * 64),
            root_disk=RootDisk(serial=f"conformance-{self.token}"),
        )

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        try:
            async with (
                aiohttp.ClientSession(timeout=_WAIT, connector=aiohttp.TCPConnector(ssl=self.trust)) as session,
                session.request(method, f"{self.base}/{path}", allow_redirects=False, **options) as answer,
            ):
                body = b""
                async for part in answer.content.iter_chunked(_PLACE):
                    body += part
                    if len(body) > _LONGEST:  # a whole medium in place of a range
                        break
                return Answer(answer.status, body, answer.headers)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise WrongAnswerError(f"{method} {path}: {type(error).__name__}") from None  # its text has the token

    async def medium_has(self, wanted: bytes) -> bool:
        """Return whether the boot medium has the bytes, without keeping more than a part of it."""
        last, size = b"", 0
        try:
            async with (
                aiohttp.ClientSession(timeout=_WHOLE, connector=aiohttp.TCPConnector(ssl=self.trust)) as session,
                session.get(f"{self.base}/boot.iso", allow_redirects=False) as answer,
            ):
                expect(answer.status == 200, f"boot.iso is answered with {answer.status} in place of 200")
                async for part in answer.content.iter_chunked(_PLACE):
                    if wanted in last + part:
                        return True
                    last, size = (last + part)[-len(wanted) :], size + len(part)
                    expect(size <= _LARGEST, f"boot.iso has more than {_LARGEST} bytes")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise WrongAnswerError(f"GET boot.iso: {type(error).__name__}") from None  # its text has the token
        return False

    async def report(self, phase: str, **more: object) -> Answer:
        return await self.ask("POST", "status", json={"phase": phase} | more)

    async def expect(self, wanted: int, what: str, answer: Awaitable[Answer]) -> Answer:
        found = await answer
        expect(found.status == wanted, f"{what} is answered with {found.status} in place of {wanted}")
        return found


async def _publish(bench: Bench) -> None:
    attempt = AttemptCredential(url="", mac="02:00:00:00:00:01", address="192.0.2.7/24")
    url = await bench.installer.publish(bench.token, bench.document(), attempt)
    expect(url.endswith(f"/{bench.token}/boot.iso"), "the URL of the boot medium does not end in /TOKEN/boot.iso")
    bench.base = url.removesuffix("/boot.iso")


async def _document(bench: Bench) -> None:
    found = await bench.expect(200, "install.json", bench.ask("GET", "install.json"))
    try:
        read = load_contract(InstallDocument, found.body)
    except ValueError as error:
        raise WrongAnswerError(f"install.json is not the contract's: {error}") from None
    expect(read == bench.document(), "install.json is another document than was published")
    expect((await bench.installer.progress(bench.token)).fetched, "that it was fetched is not reported")


async def _others(bench: Bench) -> None:
    mine, bench.base = bench.base, bench.base.replace(bench.token, "0" * 32)
    try:
        for method, path in (("GET", "install.json"), ("GET", "boot.iso"), ("POST", "status")):
            body = {"json": {"phase": "started"}} if method == "POST" else {}
            await bench.expect(404, f"{method} {path} of a token that nobody has", bench.ask(method, path, **body))
    finally:
        bench.base = mine


async def _medium(bench: Bench) -> None:
    head = await bench.expect(200, "HEAD boot.iso", bench.ask("HEAD", "boot.iso"))
    size = int(head.headers.get("Content-Length") or 0)
    expect(size > 0, "HEAD boot.iso names no Content-Length, which BMCs need")
    first = max(0, size - _PLACE)
    part = await bench.expect(
        206, "a range of boot.iso", bench.ask("GET", "boot.iso", headers={"Range": f"bytes={first}-"})
    )
    expect(len(part.body) == size - first, f"a range of {size - first} bytes has {len(part.body)}")
    behind = bench.ask("GET", "boot.iso", headers={"Range": f"bytes={size}-"})
    await bench.expect(416, "a range behind the end of boot.iso", behind)
    url = json.dumps(bench.base).encode()  # as attempt.cred has it
    expect(await bench.medium_has(url), "boot.iso has no attempt.cred with the URL of this attempt")


async def _refusals(bench: Bench) -> None:
    await bench.expect(400, "a report with an unknown key", bench.report("started", unheard_of=1))
    await bench.expect(400, "a report with a phase that there is not", bench.report("done"))
    await bench.expect(400, "a report that is no JSON", bench.ask("POST", "status", data=b"{"))
    await bench.expect(413, "a report of 20 KiB", bench.report("started", detail="x" * 20_000))
    expect((await bench.installer.progress(bench.token)).phase is None, "a report that was refused is counted")


async def _reports(bench: Bench) -> None:
    for phase, percent in (("started", None), ("writing", 40), ("writing", 40), ("written", 100)):
        more = {} if percent is None else {"percent": percent}
        await bench.expect(204, f"the report {phase}", bench.report(phase, **more))
        found = (await bench.installer.progress(bench.token)).phase
        expect(found is InstallPhase(phase), f"after the report {phase}, progress is {found}")


async def _early(bench: Bench) -> None:
    found = await bench.ask("POST", "hostkey", data=_public_key())
    if found.status == 404:
        raise DriverError(Failure.UNSUPPORTED, "there is no host CA: hosts keep the keys that they make")
    expect(found.status == 409, f"a host key before `written` is answered with {found.status} in place of 409")


async def _again(bench: Bench) -> None:
    """The answer may be lost, so the same key is sent again; a second key is an incident."""
    key = _public_key()
    first = await bench.ask("POST", "hostkey", data=key)
    if first.status == 404:
        raise DriverError(Failure.UNSUPPORTED, "there is no host CA: hosts keep the keys that they make")
    expect(first.status == 200, f"a host key after `written` is answered with {first.status} in place of 200")
    expect(b"-cert-v01@openssh.com " in first.body, "a host key is answered with something else than a certificate")
    again = await bench.expect(200, "the same host key again", bench.ask("POST", "hostkey", data=key))
    expect(again.body == first.body, "the same host key gets another certificate")
    await bench.expect(403, "a second host key", bench.ask("POST", "hostkey", data=_public_key()))
    await bench.expect(403, "a report after a second host key", bench.report("installed"))


async def _kept(bench: Bench) -> None:
    """A reconciler that starts again publishes the same attempt again, while its installer is at work."""
    before = (await bench.installer.progress(bench.token)).phase
    await bench.installer.publish(bench.token, bench.document(), None)
    after = (await bench.installer.progress(bench.token)).phase
    expect(before is after, f"publishing the attempt again makes its phase {after}, and it was {before}")


async def _withdraw(bench: Bench) -> None:
    await bench.installer.withdraw(bench.token)
    await bench.installer.withdraw(bench.token)  # of one that is not served is success
    for path in ("install.json", "boot.iso"):
        await bench.expect(404, f"{path} of an attempt that was withdrawn", bench.ask("GET", path))
    await bench.expect(404, "a report to an attempt that was withdrawn", bench.report("started"))


def _public_key() -> bytes:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key()


_PAGE: Final = "installer contract"
PROBES: Final[tuple[Probe[Bench], ...]] = (
    (Check("publish", f"{_PAGE}: The boot medium", "nothing is installed", ("E3",)), _publish),
    (Check("document", f"{_PAGE}: The document", "an installer stops, or installs something else"), _document),
    (Check("other-tokens", f"{_PAGE}: the token is the only credential", "strangers read documents"), _others),
    (Check("boot-medium", f"{_PAGE}: Range, HEAD; What goes wrong, 416", "BMCs can't mount it", ("E3",)), _medium),
    (Check("refusals", f"{_PAGE}: What goes wrong, 400 and 413", "reports are misread"), _refusals),
    (Check("early-host-key", f"{_PAGE}: What goes wrong, 409", "a host is trusted that is not installed"), _early),
    (Check("reports", f"{_PAGE}: The phases; all calls may be repeated", "installs are taken for stuck"), _reports),
    (Check("published-again", "reconciler/model/ports.py: Installer.publish", "a restart installs twice"), _kept),
    (Check("host-key", f"{_PAGE}: The host key", "another machine is taken for the node",
           writes=f"a host certificate for the name {NODE}, whose key is thrown away"), _again),
    (Check("withdraw", f"{_PAGE}: What goes wrong, 404", "a machine is installed that was given up"), _withdraw),
)  # fmt: skip
ALL: Final = tuple(check for check, _ in PROBES)


async def check_server(bench: Bench, name: str, *, writes: bool) -> ConformanceReport:
    """Try the checks. What was published is withdrawn, however they end. Without `writes` no host key is certified."""
    try:
        found = await run_probes(PROBES, bench, writes=writes, fails=frozenset(Failure), first="publish")
    finally:
        with suppress(DriverError):  # the checks have told of it
            await bench.installer.withdraw(bench.token)
    return ConformanceReport("installer", name, found)
