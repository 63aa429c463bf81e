"""Hash trees of dm-verity: those of veritysetup, byte for byte, and none that a changed block still fits."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from reconciler.drivers.boot_images.tools import BuildFailed
from reconciler.drivers.boot_images.verity import BLOCK, read_superblock, root_hash_of, write_hash_tree

SALT, ID = bytes(range(32)), UUID(int=7)


def disk(path: Path, blocks: int) -> Path:
    path.write_bytes(random.Random(blocks).randbytes(blocks * BLOCK))
    return path


@pytest.mark.tool
@pytest.mark.parametrize("blocks", [2, 127, 128, 129, 128 * 128, 128 * 128 + 1])
def test_the_tree_is_that_of_veritysetup(blocks: int, tmp_path: Path) -> None:
    """One level, two and three, full and not."""
    program = shutil.which("veritysetup", path="/usr/sbin:/sbin:/usr/bin")
    if program is None:
        pytest.skip("veritysetup is not installed (apt-get install cryptsetup-bin)")
    data = disk(tmp_path / "data", blocks)
    root = write_hash_tree(data, tmp_path / "ours", SALT, ID)
    argv: list[str | Path] = [program, "format", data, tmp_path / "theirs", f"--salt={SALT.hex()}", f"--uuid={ID}"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert f"Root hash:      \t{root}" in told
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    subprocess.run([program, "verify", data, tmp_path / "ours", root], check=True)


def test_a_tree_says_what_it_is_of(tmp_path: Path) -> None:
    root = write_hash_tree(disk(tmp_path / "data", 300), tmp_path / "tree", SALT, ID)
    tree = (tmp_path / "tree").read_bytes()
    superblock = read_superblock(tree)
    assert superblock is not None
    assert (superblock.data_blocks, superblock.salt) == (300, SALT)
    assert root_hash_of(tree, SALT) == root
    assert read_superblock(bytes(BLOCK)) is None
    assert read_superblock(b"") is None


def test_any_changed_block_changes_the_root_hash(tmp_path: Path) -> None:
    data = disk(tmp_path / "data", 200)
    before = write_hash_tree(data, tmp_path / "tree", SALT, ID)
    content = bytearray(data.read_bytes())
    for at in (0, 150 * BLOCK + 17, len(content) - 1):
        content[at] ^= 1
        data.write_bytes(content)
        assert write_hash_tree(data, tmp_path / "tree", SALT, ID) != before
        content[at] ^= 1
    with pytest.raises(BuildFailed, match="whole blocks"):
        write_hash_tree(disk(tmp_path / "one", 1), tmp_path / "tree", SALT, ID)
