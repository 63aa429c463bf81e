"""From a built image to the spec: it is signed and its entry is valid; what would not boot is not signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.cli.main import run
from reconciler.gate.trust import verify_image
from reconciler.spec import load_spec
from tests.drivers.boot_images.test_image import NEEDS, made
from tests.spec.example import changed


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    for program, package in {**NEEDS, "minisign": "minisign"}.items():
        if shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            pytest.skip(f"{program} is not installed (apt-get install {package})")
    if not Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub").exists():
        pytest.skip("systemd-stub is not installed (apt-get install systemd-boot-efi)")
    argv: list[str | Path] = ["minisign", "-G", "-W", "-p", tmp_path / "key.pub", "-s", tmp_path / "key"]
    subprocess.run(argv, check=True, capture_output=True)
    return made(tmp_path / "work")


def sign(disk: Path, name: str = "node", version: str = "1") -> int:
    return run(
        ["image", "sign", str(disk), "--key", str(disk.parents[1] / "key"), "--name", name, "--version", version]
    )


@pytest.mark.tool
def test_a_signed_image_goes_into_the_spec_and_is_trusted(
    disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sign(disk) == 0
    printed = capfd.readouterr().out
    printed = printed[printed.index("apiVersion") :]
    for name, content in changed(
        ("pool.yaml", '{name: ubuntu-gpu, version: "2026.11.1"}', '{name: node, version: "1"}')
    ).items():
        (tmp_path / "spec" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spec" / name).write_bytes(content)
    (tmp_path / "spec/node.yaml").write_text(printed)
    fleet = load_spec(tmp_path / "spec", directory="spec")
    image = fleet.nodes["gpu-a001"].profile.image
    assert image is not None
    assert (image.name, image.version, image.size) == ("node", "1", disk.stat().st_size)
    assert (image.format, image.contents) == ("raw", {"kernel": "6.1.0-1"})
    assert verify_image(image, (tmp_path / "key.pub").read_text()) is True
    assert (disk.parent / "disk.raw.minisig").read_text().strip() == image.signature


@pytest.mark.tool
def test_what_says_that_it_is_another_image_is_not_signed(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert sign(disk, version="2") != 0
    assert "the image says that it is node 1, not node 2" in capfd.readouterr().err
    assert not (disk.parent / "disk.raw.minisig").exists()


@pytest.mark.tool
def test_what_would_not_boot_is_not_signed(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray(disk.read_bytes())
    at = content.index(b"roothash=") + len("roothash=")
    content[at : at + 4] = b"0000" if content[at : at + 4] != b"0000" else b"1111"
    disk.write_bytes(content)
    assert sign(disk) != 0
    assert "is not signed: EFI/Linux/node_1+3-0.efi: no partitions with the ids" in capfd.readouterr().err


@pytest.mark.tool
def test_inspect_shows_partitions_root_hash_and_measurements(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "inspect", str(disk)]) == 0
    printed = capfd.readouterr().out
    for line in (
        "UKI          EFI/Linux/node_1+3-0.efi, systemd-stub 252",
        "  os-release IMAGE_VERSION=1",
        "  roothash   ",
        "  PCR 4      ",
        "  PCR 11     ",
    ):
        assert f"\n{line}" in printed, printed
    assert "kind: GoldenImage" in printed


def test_what_is_no_image_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"text")
    assert run(["image", "inspect", str(tmp_path / "file")]) != 0
    assert "file is no disk image with a GPT" in capfd.readouterr().err
