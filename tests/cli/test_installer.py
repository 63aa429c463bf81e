"""reconciler installer build: what it refuses before it fetches anything. The build itself needs a mirror of Debian."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.app.installer_build import source_date_epoch
from reconciler.drivers.boot_images.trust import read_certificates, read_minisign_key
from reconciler.lab.pki import ImageKey, TlsAuthority
from reconciler.model.errors import UsageError
from tests.cli.shell import reconciler


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    file.write_text(TlsAuthority().pem)
    return file


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "minisign.pub"
    file.write_text(f"untrusted comment: minisign public key\n{ImageKey().public_text}\n")
    return file


def test_a_private_key_beside_the_certificates_stays_out(ca: Path) -> None:
    certificates = ca.read_bytes()
    secret = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    ca.write_bytes(secret + certificates + certificates)
    read = read_certificates(ca)
    assert read.count(b"BEGIN CERTIFICATE") == 2
    assert b"PRIVATE" not in read


@pytest.mark.parametrize("text", ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_certificates_is_refused(ca: Path, key: Path, tmp_path: Path, text: str) -> None:
    ca.write_text(text)
    done = reconciler(
        "installer",
        "build",
        "--out",
        tmp_path / "out",
        "--ca",
        ca,
        "--trusted-key",
        f"release={key}",
        "--suite",
        "none",
    )
    assert done.code == 64, done.err
    assert "no certificate in PEM" in done.err
    assert not (tmp_path / "out").exists()


def test_a_key_of_minisign_is_taken_as_it_is_and_no_other(key: Path) -> None:
    assert read_minisign_key(key) == key.read_bytes()
    for text in ("", "untrusted comment: x\n", "RWQ=\n", f"{ImageKey().public_text}AAAA\n", "not base64!\n"):
        key.write_text(text)
        with pytest.raises(UsageError, match="not a minisign public key"):
            read_minisign_key(key)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--trusted-key"),
        (["--trusted-key", "release"], "'release' is not NAME=FILE"),
        (["--trusted-key", "../x={key}"], "is not NAME=FILE"),
        (["--trusted-key", "release=/nonexistent"], "/nonexistent"),
        (["--trusted-key", "release={key}", "--key", "{key}"], "--key and --cert belong together"),
        (["--trusted-key", "release={key}", "--arch", "vax"], "'vax' is not one of"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, ca: Path, key: Path, tmp_path: Path) -> None:
    given = [word.format(key=key) for word in words]
    done = reconciler("installer", "build", "--out", tmp_path / "out", "--ca", ca, *given)
    assert done.code == 64, done.err
    assert said in done.err
    assert not (tmp_path / "out").exists()


def test_the_date_of_all_files_is_that_of_the_environment() -> None:
    assert source_date_epoch({"SOURCE_DATE_EPOCH": "1700000000"}) == 1_700_000_000
    assert source_date_epoch({}) > 1_700_000_000
    for wrong in ("", "yesterday", "-1", "99999999999"):
        with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
            source_date_epoch({"SOURCE_DATE_EPOCH": wrong})
