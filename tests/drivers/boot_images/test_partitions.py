"""Partition tables of images: sfdisk reads what we write, and we read what sfdisk writes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from reconciler.drivers.boot_images.partitions import (
    ESP,
    MIB,
    ROOT,
    NoTable,
    arranged,
    ids_of_roothash,
    read_table,
    write_table,
)

DISK = UUID("11111111-2222-4333-8444-555555555555")
PARTS = arranged([("esp", ESP, UUID(int=1), 3 * MIB), ("root", ROOT["amd64"], UUID(int=2), 2 * MIB + 4096)])


def sfdisk(*argv: str | Path, text: str = "") -> str:
    program = shutil.which("sfdisk", path="/usr/sbin:/sbin:/usr/bin")
    if program is None:
        pytest.skip("sfdisk is not installed (apt-get install fdisk)")
    return subprocess.run([program, *argv], input=text, check=True, capture_output=True, text=True).stdout


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    write_table(image, DISK, PARTS)
    assert read_table(image) == PARTS
    assert image.stat().st_size == (1 + 3 + 3 + 1) * MIB


@pytest.mark.tool
def test_sfdisk_finds_nothing_wrong_with_either_copy(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    write_table(image, DISK, PARTS)
    assert "No errors detected" in sfdisk("--verify", image)
    for damaged in (None, slice(512, 1024)):  # the second time, sfdisk falls back on the copy at the end
        if damaged:
            content = bytearray(image.read_bytes())
            content[damaged] = bytes(512)
            image.write_bytes(content)
        table = json.loads(sfdisk("--json", image))["partitiontable"]
        assert (table["label"], table["id"].lower()) == ("gpt", str(DISK))
        found = [(p["name"], p["type"].lower(), p["uuid"].lower(), p["start"] * 512, p["size"] * 512)
                 for p in table["partitions"]]  # fmt: skip
        assert found == [(p.name, str(p.type), str(p.id), p.start, p.size) for p in PARTS]


@pytest.mark.tool
def test_a_table_of_sfdisk_is_read(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(8 * MIB))
    sfdisk(image, text=f"label: gpt\nstart=2048, size=6144, type={ESP}, uuid={UUID(int=1)}, name=esp\n")
    assert read_table(image) == PARTS[:1]


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(b"")
    with pytest.raises(NoTable, match="no disk image with a GPT"):
        read_table(image)
    write_table(image, DISK, PARTS)
    content = bytearray(image.read_bytes())
    content[2 * 512 + 40] ^= 1
    image.write_bytes(content)
    with pytest.raises(NoTable, match="damaged"):
        read_table(image)
    content[2 * 512 + 40] ^= 1
    image.write_bytes(content[: 5 * MIB])
    with pytest.raises(NoTable, match=r"'root' of image\.raw ends behind the image"):
        read_table(image)


def test_ids_are_both_ends_of_the_root_hash() -> None:
    """systemd-gpt-auto-generator and veritysetup-generator look for by-partuuid/ of these."""
    first, last = ids_of_roothash("0123456789abcdef" * 2 + "fedcba9876543210" * 2)
    assert str(first) == "01234567-89ab-cdef-0123-456789abcdef"
    assert str(last) == "fedcba98-7654-3210-fedc-ba9876543210"
