"""`kubectl reconciler`, started by kubectl itself, asks the fleet of the kubeconfig's current context."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.kubectl_plugin import words_of
from reconciler.model.errors import UsageError
from tests.conftest import ROOT

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: prod, context: {cluster: c, user: u}}
- {name: other, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1"}}
users:
- {name: u, user: {}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec")
    (tmp_path / "kubeconfig.yaml").write_text(KUBECONFIG)
    contexts = f"contexts:\n  prod:\n    spec: {tmp_path}/fleet-spec\n    ledger: {tmp_path}/ledger.sqlite\n"
    (tmp_path / "contexts.yaml").write_text(contexts)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig.yaml"))
    monkeypatch.setenv("RECONCILER_CONTEXTS", str(tmp_path / "contexts.yaml"))
    program = tmp_path / "kubectl-reconciler"
    program.write_text(f"#!{sys.executable}\nfrom reconciler.cli.kubectl_plugin import main\nmain()\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["kubectl", "reconciler", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl program")
def test_kubectl_lists_and_holds_the_nodes_of_the_context(home: Path) -> None:
    listed = kubectl("get", "nodes", "-o", "name", "--create-ledger")
    assert listed.returncode == 0, listed.stderr
    node = listed.stdout.splitlines()[0]
    held = kubectl("hold", node, "--reason", "cables")
    assert (held.returncode, f"{node} is held" in held.stdout + held.stderr) == (0, True), held.stderr
    assert (home / "ledger.sqlite").is_file(), "the ledger of the context"
    assert "cables" in kubectl("hold").stdout
    explained = kubectl("explain", f"{node}.host.hostname", "--offline")
    assert explained.returncode == 0, explained.stderr
    refused = kubectl("apply")
    assert (refused.returncode, "there is no 'apply' here" in refused.stderr) == (64, True)
    strange = kubectl("--context", "other", "get", "nodes")
    assert (strange.returncode, "contexts has no 'other'" in strange.stderr) == (64, True), strange.stderr


def test_options_of_kubectl_are_taken_out(home: Path) -> None:
    where = ["--spec", f"{home}/fleet-spec", "--ledger", f"{home}/ledger.sqlite"]
    assert words_of(["--context=prod", "get", "nodes"]) == ["get", "nodes", *where]
    assert words_of(["status", "--context", "prod"]) == ["status", *where[1:]]
    assert words_of([]) == words_of(["--help"]) == []
    assert words_of(["get", "--help"]) == ["get", "--help"]
    with pytest.raises(UsageError, match="needs a value"):
        words_of(["get", "nodes", "--context"])


def test_a_missing_file_says_what_it_is_for(home: Path) -> None:
    (home / "contexts.yaml").unlink()
    with pytest.raises(UsageError, match="which fleet each context stands for"):
        words_of(["--context", "prod", "status"])


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl program")
@pytest.mark.parametrize("said", ["server: https://127.0.0.1:2", "ca: 9f86d081"])
def test_nothing_is_held_by_the_context_of_another_cluster(
    home: Path, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "contexts.yaml"
    text = file.read_text()
    file.write_text(f"{text}    server: https://127.0.0.1:1\n    ca: {hashlib.sha256().hexdigest()}\n")
    assert words_of(["hold", "gpu-a001"])[0] == "hold", "the one that is meant"
    assert not capsys.readouterr().err
    file.write_text(f"{text}    {said}\n")
    for command in ("hold", "release"):
        with pytest.raises(UsageError, match="nothing is changed"):
            words_of([command, "gpu-a001"])
    assert words_of(["get", "nodes"])[0] == "get"
    assert said.partition(": ")[2] in capsys.readouterr().err
