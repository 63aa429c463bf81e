"""UKIs: what is put into one is found again by those that read PE images, and nothing overlaps."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.boot_images.uki import BadStub, assemble_uki, read_pe, sign_efi, uki_parts
from tests.drivers.boot_images.stub import REAL, small_stub

PARTS = uki_parts(kernel=b"K" * 9000, initrd=b"I" * 5000, cmdline="quiet", os_release="ID=installer\n", uname="6.1.0")


def check_layout(image: bytes, parts: dict[str, bytes]) -> None:
    sections = read_pe(image).sections
    assert {section.name: section.content(image) for section in sections if section.name in parts} == parts
    for before, after in itertools.pairwise(sections):
        assert before.address + before.size <= after.address
        assert before.offset + before.stored <= after.offset
    added = [section for section in sections if section.name in parts]
    assert all(section.address % 4096 == 0 for section in added)


@given(st.lists(st.binary(max_size=9000), min_size=1, max_size=6))
def test_sections_are_read_back_and_do_not_overlap(contents: list[bytes]) -> None:
    parts = {f".part{index}": content for index, content in enumerate(contents)}
    image = assemble_uki(small_stub(), parts)
    check_layout(image, parts)
    assert assemble_uki(small_stub(), parts) == image


@pytest.mark.tool
@pytest.mark.skipif(not REAL.exists(), reason="systemd-boot-efi is not installed")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")
def test_objdump_sees_the_sections_of_a_real_stub_and_ours(tmp_path: Path) -> None:
    stub = REAL.read_bytes()
    image = assemble_uki(stub, PARTS)
    check_layout(image, PARTS)
    (tmp_path / "uki.efi").write_bytes(image)
    shown = subprocess.run(["objdump", "-h", tmp_path / "uki.efi"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *\d+ (\.\w+) +([0-9a-f]{8})  ([0-9a-f]{16})", shown, re.MULTILINE)
    sections = read_pe(image).sections
    assert [(name, int(size, 16), int(address, 16)) for name, size, address in found] == [
        (section.name, section.size, section.address) for section in sections
    ]


@pytest.mark.parametrize(
    ("stub", "problem"),
    [
        (b"", "ends within its headers"),
        (b"MZ" + bytes(400), "no 64-bit PE image"),
        (small_stub(room=512), "no room for 5 more sections"),
        (small_stub(((b".text", 0x1000, b"x"), (b".osrel", 0x2000, b"ID=x"))), "has a section .osrel already"),
    ],
)
def test_a_stub_that_takes_no_sections_is_refused(stub: bytes, problem: str) -> None:
    with pytest.raises(BadStub, match=problem):
        assemble_uki(stub, PARTS)


def test_a_signed_stub_is_refused() -> None:
    stub = bytearray(small_stub())
    struct.pack_into("<II", stub, read_pe(bytes(stub)).optional + 112 + 32, len(stub), 8)
    with pytest.raises(BadStub, match="signed"):
        assemble_uki(bytes(stub), PARTS)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, certificate = tmp_path / "db.key", tmp_path / "db.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=db", "-days", "9",
         "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


NEED = [name for name in ("osslsigncode", "sbverify", "openssl") if shutil.which(name) is None]


@pytest.mark.tool
@pytest.mark.skipif(bool(NEED), reason=f"{', '.join(NEED)}: not installed")
def test_a_signed_uki_is_the_same_each_time_and_verifies(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    images = [tmp_path / "1.efi", tmp_path / "2.efi"]
    for image in images:
        image.write_bytes(assemble_uki(small_stub(), PARTS))
        sign_efi(image, *certificate, epoch=1_700_000_000)
    assert images[0].read_bytes() == images[1].read_bytes()
    subprocess.run(["sbverify", "--cert", certificate[1], images[0]], check=True, capture_output=True)
    altered = bytearray(images[0].read_bytes())
    altered[read_pe(bytes(altered)).sections[-1].offset] ^= 1
    images[1].write_bytes(altered)
    assert subprocess.run(["sbverify", "--cert", certificate[1], images[1]], capture_output=True).returncode != 0
