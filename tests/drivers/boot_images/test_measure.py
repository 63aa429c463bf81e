"""What a TPM will have measured of an image: as systemd-measure and the tools of Secure Boot compute it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.boot_images.measure import PHASES, authenticode, predict_pcr11, stub_version
from reconciler.drivers.boot_images.uki import assemble_uki, sign_efi
from tests.drivers.boot_images.stub import REAL, small_stub

MEASURE = Path("/usr/lib/systemd/systemd-measure")
LOADER = Path("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
SECTIONS = {".osrel": b"ID=x\n", ".cmdline": b"quiet", ".uname": b"6.1.0", ".linux": b"K" * 9001, ".initrd": b"I" * 777}


def real_uki() -> bytes:
    if not REAL.exists():
        pytest.skip("systemd-stub is not installed (apt-get install systemd-boot-efi)")
    return assemble_uki(REAL.read_bytes(), SECTIONS)


@pytest.mark.tool
@pytest.mark.parametrize("phase", ["", *PHASES])
def test_pcr_11_is_what_systemd_measure_computes(phase: str, tmp_path: Path) -> None:
    uki = real_uki()
    if not MEASURE.exists() or stub_version(uki) >= 254:
        pytest.skip("systemd-measure of a version below 254 is not installed (apt-get install systemd)")
    argv: list[str | Path] = [MEASURE, "calculate", "--bank=sha256"]
    for name in (".linux", ".osrel", ".cmdline", ".initrd"):  # the older stub leaves out .uname
        (tmp_path / name).write_bytes(SECTIONS[name])
        argv.append(f"--{name[1:]}={tmp_path / name}")
    argv += ["--phase=" + ":".join(PHASES.get(phase, ()))]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"11:sha256=([0-9a-f]{64})", told) == [predict_pcr11(uki)[phase]]


def test_stubs_from_254_on_measure_uname_too() -> None:
    def told(version: bytes, **more: bytes) -> dict[str, str]:
        stub = small_stub(((b".text", 0x1000, b"#### LoaderInfo: systemd-stub " + version + b" ####"),))
        return predict_pcr11(assemble_uki(stub, {".linux": b"k", **{f".{name}": text for name, text in more.items()}}))

    assert told(b"252.39-1") == told(b"252.39-1", uname=b"6.1") == told(b"254.1") != told(b"254.1", uname=b"6.1")
    assert told(b"252", pcrsig=b"x") == told(b"252") != told(b"252", cmdline=b"quiet")


@pytest.mark.tool
def test_the_digest_is_the_one_that_a_signature_covers(tmp_path: Path) -> None:
    if shutil.which("osslsigncode") is None or shutil.which("openssl") is None:
        pytest.skip("osslsigncode or openssl is not installed (apt-get install osslsigncode openssl)")
    key, certificate, signed = (tmp_path / name for name in ("key.pem", "cert.pem", "signed.efi"))
    make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -days 9 -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)
    for image in (real_uki(), LOADER.read_bytes()):
        signed.write_bytes(image)
        sign_efi(signed, key, certificate, 1763769600)
        argv: list[str | Path] = ["osslsigncode", "verify", "-in", signed, "-CAfile", certificate]
        told = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        assert f"Current message digest    : {authenticode(signed.read_bytes()).upper()}" in told, told


def test_checksum_and_signatures_are_not_in_the_digest() -> None:
    image = assemble_uki(small_stub(), SECTIONS)
    other = bytearray(image)
    other[0x40 + 24 + 64] ^= 1  # the checksum
    assert authenticode(bytes(other)) == authenticode(image) != hashlib.sha256(image).hexdigest()
    other[-1] ^= 1
    assert authenticode(bytes(other)) != authenticode(image)
