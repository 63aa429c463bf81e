"""The server of install documents, as an installer asks it."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import ClientConnectorCertificateError, ClientSession

from reconciler.drivers.redfish.fields import quote
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import InstallDocument, InstallPhase, dump_contract, load_contract
from reconciler.model.install_progress import InstallProgress
from reconciler.model.printable import without_secrets
from tests.drivers.installer.conftest import DOCUMENT, NODE, TOKEN, Site, ask, new_host_key, report, run, write_secret

pytestmark = pytest.mark.wire


def base_of(url: str) -> str:
    return url.removesuffix("/boot.iso")


def test_an_installer_that_has_its_document_has_started(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            await installer.publish("6a" * 16, DOCUMENT, None)
            assert (await ask("GET", f"{base.replace(TOKEN, 'other')}/install.json")).status == 404
            assert (await ask("HEAD", f"{base}/install.json")).status == 200
            assert not (await installer.progress(TOKEN)).fetched, "HEAD gives nobody the document"
            answer = await ask("GET", f"{base}/install.json")
            assert load_contract(InstallDocument, answer.body) == DOCUMENT
            assert await installer.progress(TOKEN) == InstallProgress(site.time.at, fetched=True, at=site.time.at)
            assert not (await installer.progress("6a" * 16)).fetched
            await installer.withdraw(TOKEN)
            await installer.withdraw(TOKEN)
            assert (await ask("GET", f"{base}/install.json")).status == 404
            assert (await ask("HEAD", f"{base}/boot.iso")).status == 404
            assert (await report(base, "started")).status == 404
            assert not (await installer.progress(TOKEN)).fetched

    run(play())


def test_reports_are_shown_until_the_last_one(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))

            async def told(phase: str, **values: object) -> tuple[object, ...]:
                assert (await report(base, phase, **values)).status == 204
                found = await installer.progress(TOKEN)
                return found.phase, found.percent, found.detail

            assert await told("started") == (InstallPhase.STARTED, None, "")
            assert await told("writing", percent=0) == (InstallPhase.WRITING, 0, "")
            site.time.pass_by(5)
            assert await told("writing", percent=50) == (InstallPhase.WRITING, 50, "100.0 MB/s compressed")
            site.time.pass_by(5)
            assert await told("writing") == (InstallPhase.WRITING, 50, ""), "it said no percent, and is no further"
            site.time.pass_by(5)
            assert await told("writing", percent=90, detail="at 7 MB/s") == (InstallPhase.WRITING, 90, "at 7 MB/s")
            failed = (InstallPhase.FAILED, None, "disk D1: I/O error")
            assert await told("failed", detail="disk D1: I/O error") == failed
            assert (await installer.progress(TOKEN)).ended
            site.time.pass_by(5)
            assert await told("installed") == failed
            assert (await installer.progress(TOKEN)).at == site.time.at

    run(play())


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "the document: Invalid JSON"),
        (b'{"phase":"done"}', 400, "phase: Input should be 'started'"),
        (b'{"phase":"failed","percent":101}', 400, "percent: Input should be less than"),
        (b'{"phase":"failed","reason":"x"}', 400, "reason: Extra inputs"),
        (b'{"phase":"failed","detail":"' + b"x" * 20_000 + b'"}', 413, "more than 16384 bytes"),
        (b"\xff\xfe", 400, "the document: Invalid JSON"),
    ],
)
def test_what_is_no_report_is_answered_with_the_reason(site: Site, body: bytes, status: int, reason: str) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            answer = await ask("POST", f"{base}/status", data=body)
            assert answer.status == status
            assert answer.text.startswith(reason)
            assert (await installer.progress(TOKEN)).phase is None

    run(play())


def test_no_token_is_told_to_others(site: Site) -> None:
    store = site.ledger()

    async def play() -> None:
        async with site.serving(store) as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            await report(base, "started", detail=f"GET {base}/install.json failed twice")
            shown = base.replace(TOKEN, "***")
            assert (await installer.progress(TOKEN)).detail == f"GET {shown}/install.json failed twice"
            await installer.withdraw(TOKEN)

    run(play())
    assert [entry.event for entry in store.history(NODE)] == ["install"]
    with store._database.read() as connection:
        tables = ("journal", "install_attempts")
        rows = [row for table in tables for row in connection.exec_driver_sql(f"SELECT * FROM {table}")]
    assert not [row for row in rows if TOKEN in str(row)], "an attempt that ended has no URL any more"


def test_what_a_bmc_says_has_no_token_of_an_attempt() -> None:
    url = f"https://10.0.0.1:8443/{TOKEN}/boot.iso"
    error = DriverError(Failure.REJECTED, f"the BMC says: can't mount {url} (4)")
    assert TOKEN not in str(error) + error.detail
    assert TOKEN not in quote(f"Virtual media {url} attached") + without_secrets(f"GET {url}: 404")
    assert "https://10.0.0.1:8443/***/boot.iso (4)" in error.detail


def test_another_leader_goes_on_with_the_attempt(site: Site) -> None:
    key = new_host_key(site.folder)

    async def play() -> None:
        async with site.serving(site.ledger()) as first:
            url = await first.publish(TOKEN, DOCUMENT, None)
            base, port = base_of(url), url.split("/")[2]
            await report(base, "written", percent=100, detail="digest agrees")
            certificate = (await ask("POST", f"{base}/hostkey", data=key)).text
            before = await first.progress(TOKEN)
        site.time.pass_by(60)
        async with site.serving(site.ledger(), listen=port) as second:
            site.time.pass_by(10)
            assert (await second.progress(TOKEN)).listening_since == site.time.at, "it does not listen yet"
            await second.publish("6a" * 16, DOCUMENT, None)  # it listens for another attempt
            assert load_contract(InstallDocument, (await ask("GET", f"{base}/install.json")).body) == DOCUMENT
            assert (await ask("HEAD", url)).status == 200
            await second.publish(TOKEN, DOCUMENT, None)
            after = await second.progress(TOKEN)
            assert (after.phase, after.percent, after.detail) == (before.phase, before.percent, before.detail)
            assert after.listening_since - before.listening_since == timedelta(seconds=70)
            assert (await ask("POST", f"{base}/hostkey", data=key)).text == certificate
            assert (await report(base, "installed")).status == 204
            await second.withdraw(TOKEN)
            assert (await report(base, "installed")).status == 404

    run(play())


def test_a_process_that_was_stopped_was_not_listening(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.drivers.installer.server._BEAT_S", 0.01)
    monkeypatch.setattr("reconciler.drivers.installer.server._GAP_S", 0.2)

    async def play() -> None:
        async with site.serving() as installer:
            await installer.publish(TOKEN, DOCUMENT, None)
            began = (await installer.progress(TOKEN)).listening_since
            assert began == site.time.at
            site.time.pass_by(100)
            await asyncio.sleep(0.05)
            assert (await installer.progress(TOKEN)).listening_since == began
            time.sleep(0.3)  # noqa: ASYNC251 - nothing of this process runs meanwhile, as after SIGSTOP
            await asyncio.sleep(0.05)
            assert (await installer.progress(TOKEN)).listening_since == site.time.at

    run(play())


def test_an_address_in_use_is_said(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as one:
            url = await one.publish(TOKEN, DOCUMENT, None)
            async with site.serving(listen=url.split("/")[2]) as two:
                with pytest.raises(DriverError, match=r"can't serve install documents on 127\.0\.0\.1") as refused:
                    await two.publish(TOKEN, DOCUMENT, None)
                assert refused.value.kind is Failure.REJECTED

    run(play())


def test_a_ledger_that_fails_is_asked_again_later(site: Site) -> None:
    store = site.ledger()

    async def play() -> None:
        async with site.serving(store) as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            with store._database.write([]) as connection:
                connection.exec_driver_sql("UPDATE install_attempts SET status = '{'")
            answer = await report(base, "started")
            assert (answer.status, answer.text) == (503, "the ledger can't be used now")

    run(play())


# --- TLS ---------------------------------------------------------------------------------------------------------


EC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def make_certificate(folder: Path, name: str, kind: Sequence[str] = EC) -> str:
    """Write a certificate for 127.0.0.1 with the real openssl; return its PEM."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "30",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "made.key"), "-out", str(folder / "made.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    write_secret(folder / "tls-cert", (folder / "made.pem").read_text())
    write_secret(folder / "tls-key", (folder / "made.key").read_text())
    return (folder / "made.pem").read_text()


@pytest.mark.tool
def test_calls_are_encrypted_and_a_new_certificate_is_taken_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.drivers.secrets.REREAD_S", 0.0)
    old = make_certificate(site.folder, "old")

    async def status(url: str, pem: str) -> int:
        context = ssl.create_default_context(cadata=pem)
        async with ClientSession() as session, session.head(url, ssl=context) as answer:
            return answer.status

    async def play() -> None:
        async with site.serving(certificate="tls-cert", key="tls-key") as installer:
            url = await installer.publish(TOKEN, DOCUMENT, None)
            assert url.startswith("https://127.0.0.1:")
            assert await status(url, old) == 200
            new = make_certificate(site.folder, "new")
            await installer.publish("6a" * 16, DOCUMENT, None)
            assert await status(url, new) == 200
            with pytest.raises(ClientConnectorCertificateError):
                await status(url, old)

    run(play())


# What the firmware offers, as edk2 of 2022.11 sends it over HTTP boot: TLS 1.2, and nothing with elliptic curves.
_FIRMWARE = "DHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA256:DHE-RSA-AES128-SHA256"


@pytest.mark.tool
def test_firmware_without_elliptic_curves_fetches_the_medium(site: Site) -> None:
    certificate = make_certificate(site.folder, "rsa", ("rsa:2048",))
    context = ssl.create_default_context(cadata=certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_FIRMWARE)

    async def play() -> None:
        async with site.serving(certificate="tls-cert", key="tls-key") as installer:
            url = await installer.publish(TOKEN, DOCUMENT, None)
            assert (await ask("HEAD", url, ssl=context)).status == 200

    run(play())


def test_what_is_no_certificate_is_said_without_the_key(site: Site) -> None:
    write_secret(site.folder / "tls-cert", "nonsense")
    write_secret(site.folder / "tls-key", "hidden words")

    async def play() -> None:
        async with site.serving(certificate="tls-cert", key="tls-key") as installer:
            with pytest.raises(DriverError, match=r"installer\.certificate and installer\.key") as refused:
                await installer.publish(TOKEN, DOCUMENT, None)
            assert "hidden" not in str(refused.value)

    run(play())


def test_the_stable_url_is_what_machines_are_told(site: Site) -> None:
    async def play() -> None:
        async with site.serving(url="https://install.example.com/") as installer:
            url = await installer.publish(TOKEN, DOCUMENT, None)
            assert url == f"https://install.example.com/{TOKEN}/boot.iso"

    run(play())


def test_a_document_is_served_as_the_contract_writes_it(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            answer = await ask("GET", f"{base}/install.json")
            assert answer.headers["Content-Type"].startswith("application/json")
            assert answer.body.decode() == dump_contract(DOCUMENT)
            assert json.loads(answer.body)["format"] == "1.0"

    run(play())
