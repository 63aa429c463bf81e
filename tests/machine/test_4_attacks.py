"""Who alters the boot medium or the installed system, or knows an attempt's token, gets nothing signed or admitted."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.drivers.boot_images.iso import build_iso
from reconciler.drivers.boot_images.uki import ARCHITECTURES, read_pe, sign_efi
from tests.machine.bmc import virsh
from tests.machine.fleet import Fleet
from tests.machine.machine import NAME, Machine
from tests.machine.namespace import GATEWAY
from tests.machine.operations import (
    Figure,
    applying,
    medium_of,
    next_version,
    nothing_installed,
    on_the_host,
    timed,
    version_of,
    wait_for_host,
    wait_until,
)

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]

_SERVER, _ATTACKER = b"https://10.77.0.1:8089/", b"https://10.77.0.1:9443/"
_EPOCH = 1_700_000_000
_RESETS_S = 10.0  # until a machine that was reset answers no more


class _Attacker(http.server.BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012 - one attacker is enough

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)


@contextmanager
def attacker(folder: Path) -> Iterator[list[str]]:
    """Serve TLS with a certificate that the installer's CA did not sign; yield the paths that were asked for."""
    key, certificate = folder / "attacker.key", folder / "attacker.pem"
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "1"]
    names = ["-subj", f"/CN={GATEWAY}", "-addext", f"subjectAltName=IP:{GATEWAY}"]
    subprocess.run(["openssl", "req", "-x509", *made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer((GATEWAY, 9443), _Attacker)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _Attacker.asked
    finally:
        server.shutdown()
        server.server_close()


def ask_for_a_certificate(fleet: Fleet, url: str, folder: Path) -> str:
    """Send a key of the attacker's own to the attempt, and return the answer."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "theirs")], check=True)
    body = json.dumps({"public_key": (folder / "theirs.pub").read_text().strip()}).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}/hostkey", data=body, method="POST")
    try:
        context = ssl.create_default_context(cafile=str(fleet.pki.ca))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def test_a_medium_that_was_altered_leads_nowhere(
    machine: Machine, fleet: Fleet, images: None, figure: Figure, tmp_path: Path
) -> None:
    """A BMC that is not honest sends the installer to another server, and asks for a host certificate itself."""
    version = next_version(machine, fleet)
    here = version_of(fleet)
    fleet.want(f"{version}, past an attacker", version=version)
    began, since = time.monotonic(), time.time()
    with attacker(tmp_path) as asked, nothing_installed(machine, began), applying(fleet) as apply:
        wait_until(apply, fleet, "the BMC has the medium", lambda: medium_of(since))
        medium = medium_of(since)
        assert medium is not None
        content = medium.read_bytes()
        at = content.index(_SERVER)
        with medium.open("r+b") as file:
            file.seek(at)
            file.write(_ATTACKER)
        url = content[at : content.index(b'"', at)].decode()
        told = ask_for_a_certificate(fleet, url, tmp_path)
        assert told.startswith("4"), told
        wait_until(
            apply,
            fleet,
            "the installer refuses",
            lambda: machine.console.seen("its certificate is not trusted here", since=began),
        )
        assert asked == []
        machine.cut_power()
    timed(figure, f"{here} -> {version}, after an attack on the medium", machine, fleet)
    assert version_of(fleet) == version


def test_a_system_that_was_altered_on_the_disk_is_not_admitted(
    machine: Machine, fleet: Fleet, images: None, figure: Figure, tmp_path: Path
) -> None:
    """It is signed with the right key, so that it boots; its TPM tells on it."""
    version = version_of(fleet)
    machine.cut_power()
    esp = next(part for part in machine.partitions() if part["name"] == "esp")
    place = f"{machine.disk}@@{esp['start'] * 512}"
    listed = subprocess.run(["mdir", "-b", "-i", place, "::/EFI/Linux"], check=True, capture_output=True, text=True)
    uki = next(line for line in listed.stdout.split() if f"_{version}" in line)
    good, altered = tmp_path / "good.efi", tmp_path / "altered.efi"
    subprocess.run(["mcopy", "-n", "-i", place, uki, str(good)], check=True)
    release = next(section for section in read_pe(good.read_bytes()).sections if section.name == ".osrel")
    content = release.content(good.read_bytes())
    altered.write_bytes(good.read_bytes().replace(content, content.replace(b"Debian", b"Debiam", 1), 1))
    sign_efi(altered, fleet.pki.boot_key, fleet.pki.boot_certificate, _EPOCH)
    began = time.monotonic()
    for system, verdict in ((altered, "an EFI program was started that is not declared"), (good, "")):
        subprocess.run(["mcopy", "-o", "-i", place, str(system), uki], check=True)
        virsh("start", NAME)
        wait_for_host(machine, fleet)
        _judge(fleet, verdict)
        machine.cut_power()
    figure(f"altered on the disk: found in {time.monotonic() - began:.0f} s, and the good one again")


# In place of the program: it asks the TPM, and changes a bit of what the TPM said and signed.
_TAMPER = r"""
set -e
mkdir -p /run/tampered; mount -t tmpfs -o exec none /run/tampered; cd /run/tampered
target=$(readlink -f "$(command -v tpm2_quote)"); name=${target##*/}
cp "$target" "$name"
for tool in "${target%/*}"/tpm2_*; do [ -e "${tool##*/}" ] || ln -s "$name" "${tool##*/}"; done
cat >wrapper <<'EOF'
#!/bin/sh
name=${0##*/}
/run/tampered/"$name" "$@" || exit
[ "$name" = tpm2_quote ] || exit 0
last=$(tail -c 1 quote | od -An -tu1)
printf "\\$(printf %o $((last ^ 1)))" | dd of=quote bs=1 seek=$(($(stat -c %s quote) - 1)) conv=notrunc 2>/dev/null
EOF
chmod 755 wrapper; mount --bind wrapper "$target"
"""


def test_a_quote_that_was_changed_on_the_host_is_not_believed(machine: Machine, fleet: Fleet, figure: Figure) -> None:
    """Who is root there can say what they like in place of the TPM, and can't sign it."""
    if not machine.is_on():
        virsh("start", NAME)
    began = time.monotonic()
    for tampers, verdict in ((True, "the quote's signature does not verify"), (False, "")):
        machine.qmp("system_reset")  # what boots anew must be proved anew
        time.sleep(_RESETS_S)
        wait_for_host(machine, fleet)
        if tampers:
            on_the_host(fleet, _TAMPER)
        _judge(fleet, verdict)
    figure(f"tampered quote: found, and an honest one believed again, in {time.monotonic() - began:.0f} s")


def _plan_and_apply(fleet: Fleet) -> str:
    fleet.run("plan", "--out", "plan.json")
    return fleet.run("apply", "--plan", "plan.json", "--yes", "--wait", "0").text


def _judge(fleet: Fleet, verdict: str) -> None:
    """Converge, and compare what is told. Then say that whatever was wrong is put right, as `explain` asks for."""
    told = _plan_and_apply(fleet)
    if verdict:
        told += _plan_and_apply(fleet)  # the first plan knew nothing of it; without a cluster the next one drains
    told += fleet.run("explain", NAME).text
    assert verdict in told, told
    assert ("now in service" in told) == (not verdict), told
    if verdict:
        assert fleet.run("hold", NAME, "--reason", "it is put right").code == 0
        assert fleet.run("release", NAME).code == 0


def test_firmware_denies_an_installer_without_signature(
    machine: Machine, fleet: Fleet, images: None, figure: Figure, tmp_path: Path
) -> None:
    uki, iso = tmp_path / "installer.efi", tmp_path / "installer.iso"
    command = ["osslsigncode", "remove-signature", "-in", str(fleet.builds / "installer.efi"), "-out", str(uki)]
    subprocess.run(command, check=True, capture_output=True)
    build_iso(uki, iso, ARCHITECTURES["x86_64"], _EPOCH)
    fleet.iso = iso
    try:
        fleet.want("B, by an installer that nobody signed", version="B")
    finally:
        fleet.iso = None  # what is wanted next has the signed one again
    began = time.monotonic()
    with nothing_installed(machine, began), applying(fleet) as apply:
        wait_until(apply, fleet, "firmware denies it", lambda: machine.console.seen("Access Denied", since=began))
        assert machine.console.seen("[installer", since=began) is None
    figure(f"unsigned installer: denied after {time.monotonic() - began:.0f} s")
