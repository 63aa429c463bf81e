"""What a release is made of: the wheel as PyPI takes it, and the versions that it is installed with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

LOCK = ROOT / "deploy" / "requirements.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("postgresql", "notifications", "dask")  # those of a service and of its workers


def pins() -> dict[str, tuple[str, str]]:
    """Return, by package, its version and what follows it: marker and hashes."""
    found = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)((?:.*\\\n)*.*)$", LOCK.read_text(), re.MULTILINE)
    return {canonicalize_name(name): (version, rest) for name, version, rest in found}


def test_the_lock_has_all_that_is_needed_with_its_hashes() -> None:
    wanted = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra])]
    locked = pins()
    for requirement in map(Requirement, wanted):
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: make lock"
    assert len(locked) > len(wanted)
    assert [name for name, (_, rest) in locked.items() if "--hash=sha256:" not in rest] == []


@pytest.mark.tool
def test_the_lock_is_what_the_bounds_resolve_to(tmp_path: Path) -> None:
    """With the versions that it has, so that it is not stale because of something new on PyPI."""
    copy = tmp_path / LOCK.name
    shutil.copy(LOCK, copy)
    said = compiled(copy)
    if said.returncode != 0 and re.search(
        r"[Ff]ailed to fetch|client error|error sending request|network", said.stderr
    ):
        pytest.skip(f"no package index can be reached: {said.stderr.strip()[-200:]}")
    assert said.returncode == 0, said.stderr
    assert copy.read_text() == LOCK.read_text(), "make lock"


def compiled(out: Path) -> subprocess.CompletedProcess[str]:
    """Carry out what `make lock` says."""
    ours = (f"BIN={Path(sys.executable).parent}", "ARGS=")  # not those of a `make test` that this may be part of
    dry = ["make", "--dry-run", "--always-make", "--no-print-directory", "lock", *ours]
    shown = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [command] = re.findall(r"^\S+/uv pip compile (?:.*\\\n)*.*$", shown, re.MULTILINE)
    command = command.replace("deploy/requirements.lock", str(out))
    return subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)


def test_pypi_takes_the_wheel_and_the_source(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    url = "https://github.com/acme/reconciler"
    subprocess.run(build, check=True, capture_output=True, env=os.environ | {"PROJECT_URL": url})
    files = sorted(tmp_path.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    said = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
    with zipfile.ZipFile(files[0]) as wheel:
        held = set(wheel.namelist())
        [metadata] = (wheel.read(name).decode() for name in held if name.endswith(".dist-info/METADATA"))
    said_urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata, re.MULTILINE))
    assert said_urls.keys() == {"Source", "Documentation", "Changelog", "Issues"}
    assert said_urls["Source"] == url
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(f"{url}/blob/v{PROJECT['version']}/")] == [], (
        "PyPI shows no files of ours"
    )
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "reconciler").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert modules <= held, "documents and pages of the package are in it, too"
    assert {name.partition("/")[0] for name in held} == {"reconciler", f"{files[0].name.split('-py3')[0]}.dist-info"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
