"""K3s' own files of configuration count, whichever ending they have: an endpoint in one is not overlooked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.model.k3s import CONFIG, SECRETS
from reconciler.model.k3s_datastore import STATE
from reconciler.model.outcome import Declined
from tests.converge.k3s_world import k3s_world
from tests.converge.test_k3s_datastore import ENDPOINT, TWO, told
from tests.converge.test_k3s_external import external
from tests.converge.world import World

Worlds = Callable[..., World]
NAMES = ("10-own.yml", "10-own.YAML", "10-own.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_in_any_file_that_k3s_reads_is_never_overwritten(world: Worlds, name: str) -> None:
    here = k3s_world(world, external(), servers=TWO, nodes=3)
    here.adopt()
    path = f"{CONFIG}.d/{name}"
    for server in TWO:
        files = here.machine(server).disk().files
        del files[SECRETS]
        files[path] = f"datastore-endpoint: {ENDPOINT}\n"
    told(here, "n0", f"set in {path}")
    assert isinstance(here.act("configure_k3s", "n1"), Declined)


@pytest.mark.parametrize("name", [*NAMES, "10-own.yaml.bak", "10-own.json"])
def test_the_script_looks_where_k3s_does(tmp_path: Path, name: str) -> None:
    """pkg/configfilearg/parser.go, dotDFiles: .yaml and .yml in any case, and nothing else."""
    folder = tmp_path / "config.yaml.d"
    folder.mkdir()
    (folder / name).write_text("datastore-endpoint: x\ndata-dir: /elsewhere\n")
    script = STATE.replace(str(Path(CONFIG).parent), str(tmp_path))
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    own = [line for line in found if str(tmp_path) in line]
    read = name in NAMES
    assert own == ([f"endpoint {folder / name}", f"data-dir {folder / name}"] if read else [])
