"""Disk images: what is built is found again, twice the same, and what was altered afterwards is seen."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.boot_images.definition import read_definition
from reconciler.drivers.boot_images.image import Build, SecureBootKey, make_disk
from reconciler.drivers.boot_images.inspection import inspect_image
from reconciler.drivers.boot_images.measure import authenticode
from reconciler.drivers.boot_images.partitions import read_table
from reconciler.drivers.boot_images.tools import BuildFailed
from reconciler.model.errors import UsageError
from reconciler.model.vocab import ImageFormat
from tests.conftest import ROOT

EXAMPLE = ROOT / "fleet-spec/image/image.toml"
EPOCH = 1763769600
EFI = Path("/usr/lib/systemd/boot/efi")
NEEDS = {"mkfs.erofs": "erofs-utils", "mkfs.vfat": "dosfstools", "mcopy": "mtools", "mke2fs": "e2fsprogs"}


@pytest.fixture(autouse=True)
def _tools() -> None:
    for program, package in {**NEEDS, "zstd": "zstd"}.items():
        if shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            pytest.skip(f"{program} is not installed (apt-get install {package})")
    if not (EFI / "linuxx64.efi.stub").exists():
        pytest.skip("systemd-stub is not installed (apt-get install systemd-boot-efi)")


def root_of(folder: Path, *, backwards: bool = False) -> Path:
    """What mmdebstrap leaves, as small as it can be; the order in which files are made must not matter."""
    files = {
        "boot/vmlinuz-6.1.0-1": (EFI / "systemd-bootx64.efi").read_bytes(),  # a kernel is an EFI program, too
        "boot/initrd.img-6.1.0-1": b"initrd",
        "usr/lib/os-release": b"ID=debian\nIMAGE_ID=node\nIMAGE_VERSION=1\n",
        "usr/lib/systemd/boot/efi/linuxx64.efi.stub": (EFI / "linuxx64.efi.stub").read_bytes(),
        "usr/lib/systemd/boot/efi/systemd-bootx64.efi": (EFI / "systemd-bootx64.efi").read_bytes(),
        **{f"etc/file{number}": b"x" * number for number in range(40)},
    }
    for name in sorted(files, reverse=backwards):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return folder


def build(folder: Path, **changes: Any) -> Build:
    definition = read_definition(EXAMPLE).model_copy(update={"name": "node", "version": "1", "esp_mib": 64, **changes})
    folder.mkdir(parents=True, exist_ok=True)
    return Build(definition, EXAMPLE.parent, folder, EPOCH, None, print)


def made(folder: Path, *, backwards: bool = False, key: SecureBootKey | None = None, **changes: Any) -> Path:
    of = replace(build(folder, **changes), key=key)
    return make_disk(of, root_of(folder / "root", backwards=backwards), folder)


@pytest.mark.tool
def test_an_image_says_of_itself_what_it_is(tmp_path: Path) -> None:
    found = inspect_image(made(tmp_path), tmp_path)
    assert found.problems == ()
    assert [part.name for part in found.partitions] == ["esp", "root", "root-verity"]
    (uki,) = found.ukis
    assert uki.path == "EFI/Linux/node_1+3-0.efi"
    assert (uki.kernel, uki.os_release["IMAGE_ID"], uki.os_release["IMAGE_VERSION"]) == ("6.1.0-1", "node", "1")
    assert uki.roothash is not None
    ids = [part.id.replace("-", "") for part in found.partitions[1:]]
    assert ids == [uki.roothash[:32], uki.roothash[-32:]]
    assert uki.cmdline.startswith(f"root=/dev/mapper/root roothash={uki.roothash} ro ")
    loader = authenticode((EFI / "systemd-bootx64.efi").read_bytes())
    assert list(uki.applications) == ["boot loader", "UKI"]
    assert uki.applications["boot loader"] == loader


@pytest.mark.tool
def test_equal_parts_give_equal_bytes(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b", backwards=True)
    assert first.read_bytes() == second.read_bytes()
    assert made(tmp_path / "c", version="2").read_bytes() != first.read_bytes()


@pytest.mark.tool
@pytest.mark.parametrize("part", ["root-verity", "uki"])
def test_what_was_altered_is_seen(part: str, tmp_path: Path) -> None:
    disk = made(tmp_path)
    content = bytearray(disk.read_bytes())
    if part == "uki":
        at = content.index(b"roothash=") + len("roothash=")
        content[at : at + 64] = b"0" * 64
    else:
        at = next(one.start for one in read_table(disk) if one.name == part) + 4096
        content[at] ^= 1
    disk.write_bytes(content)
    (problem,) = inspect_image(disk, tmp_path).problems
    assert problem.endswith(
        "no partitions with the ids 00000000-0000-0000-0000-000000000000 and 00000000-0000-0000-0000-000000000000 of "
        "its root hash"
        if part == "uki"
        else "partition root-verity has another root hash than the UKI"
    )


@pytest.mark.tool
def test_a_root_without_verity_is_found_by_its_id(tmp_path: Path) -> None:
    found = inspect_image(made(tmp_path, verity=False, root_mib=64), tmp_path)
    assert found.problems == ()
    (uki,) = found.ukis
    assert uki.roothash is None
    assert uki.cmdline.startswith(f"root=PARTUUID={found.partitions[1].id} rw ")


@pytest.mark.tool
def test_loader_and_uki_are_signed_for_secure_boot(tmp_path: Path) -> None:
    if shutil.which("sbverify") is None or shutil.which("openssl") is None:
        pytest.skip("sbverify or openssl is not installed (apt-get install sbsigntool openssl)")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -days 9 -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)
    disk = made(tmp_path / "a", key=SecureBootKey(tmp_path / "key.pem", tmp_path / "cert.pem"))
    for name in ("loader.efi", "uki.efi"):
        subprocess.run(["sbverify", "--cert", tmp_path / "cert.pem", tmp_path / "a" / name], check=True)
    again = made(tmp_path / "b", key=SecureBootKey(tmp_path / "key.pem", tmp_path / "cert.pem"))
    assert disk.read_bytes() == again.read_bytes()


@pytest.mark.tool
def test_a_compressed_image_is_inspected_as_the_disk_in_it(tmp_path: Path) -> None:
    disk = made(tmp_path / "a")
    subprocess.run(["zstd", "-q", disk, "-o", tmp_path / "image"], check=True)
    found, plain = inspect_image(tmp_path / "image", tmp_path), inspect_image(disk, tmp_path)
    assert (found.file.format, plain.file.format) == (ImageFormat.RAW_ZSTD, ImageFormat.RAW)
    assert (found.partitions, found.ukis, found.problems) == (plain.partitions, plain.ukis, ())


@pytest.mark.tool
def test_two_kernels_are_one_too_many(tmp_path: Path) -> None:
    root = root_of(tmp_path / "root")
    (root / "boot/vmlinuz-6.1.0-2").write_bytes(b"")
    with pytest.raises(BuildFailed, match="an image has one kernel, and this has 2"):
        make_disk(build(tmp_path), root, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "debian-node"', 'name = "Debian node"', "name: String should match pattern"),
        ('version = "2026.11.1"', 'version = "1+2"', "version: String should match pattern"),
        ("verity = true", "veritas = true", "veritas: Extra inputs are not permitted"),
        ('tree = "tree"', 'tree = "gone"', "names gone, which is not beside it"),
        ('tree = "tree"', "tree = ", "is not TOML"),
        ('architecture = "amd64"', 'architecture = "riscv64"', "architecture: Input should be 'amd64' or 'arm64'"),
    ],
)
def test_what_is_wrong_in_a_definition_is_named(old: str, new: str, why: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE.parent, tmp_path / "image")
    path = tmp_path / "image/image.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=why):
        read_definition(path)


def test_the_example_of_an_image_is_no_part_of_the_spec() -> None:
    """The loader reads YAML, and follows no link; a definition has neither."""
    assert read_definition(EXAMPLE).verity
    for path in EXAMPLE.parent.rglob("*"):
        assert path.suffix not in {".yaml", ".yml"}
        assert not path.is_symlink()
